"""Do served topics still have what their sources have, and is it equal?"""
