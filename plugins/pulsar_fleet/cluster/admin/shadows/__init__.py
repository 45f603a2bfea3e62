"""Which calls would let a shadow topic delete data of its source?"""
