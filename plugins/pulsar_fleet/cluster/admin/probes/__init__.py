"""What answers at an address, and why does it refuse?"""
