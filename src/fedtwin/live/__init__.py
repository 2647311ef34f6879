"""The live fleet: edge server and device agents over NATS JetStream, driving the same coordinator as the simulator."""
