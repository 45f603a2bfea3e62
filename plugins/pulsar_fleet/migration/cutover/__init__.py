"""How clients are moved: quiesce, redirect, terminate."""
