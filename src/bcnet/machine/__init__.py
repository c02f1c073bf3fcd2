"""What is true of the computer and not of the method: devices, precision, threads, memory, disk."""
