"""What several clusters should hold alike: fields that mean the same on each, when they were written, who wins."""
