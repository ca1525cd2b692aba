"""Many users on one machine: each has a home, a key and a worker process, which runs when needed."""
