"""What is refused before anything is written: clusters with one store, and clusters that cannot replicate."""
