"""Where applications connect: a document for each group of them, which their clients follow while they run."""
