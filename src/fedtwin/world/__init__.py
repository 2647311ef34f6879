"""What is true of the fleet: its places and its draws. Only simulators and an emulated device may look here."""
