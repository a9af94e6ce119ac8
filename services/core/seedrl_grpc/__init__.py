"""What the services on grpcio share. Actors and clients do without it: they have grpclib."""
