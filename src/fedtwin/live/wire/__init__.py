"""What edge server, devices and workers say to each other, and how it travels."""
