"""What is true of the fleet. Only the simulator and an emulated device may look here; the server knows its twin."""
