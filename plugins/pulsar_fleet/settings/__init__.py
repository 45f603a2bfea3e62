"""The settings of every procedure, each declared once: the form, the command line and the docs are made of them."""
