"""Which acknowledgments on a shadow topic does the owner's subscription lack, and how are they carried to it?"""
