"""The simulation engine: builds a simulator, hosts Python in it and runs its clock."""
