"""How a cluster joins the fleet: everything that the source holds is copied and read back equal."""
