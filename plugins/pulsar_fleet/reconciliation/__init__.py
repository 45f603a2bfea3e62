"""Keep the policies of clusters equal that share no metadata store: observe, merge, repair."""
