"""Many users on one machine: each has a home, a key and a worker of their own, which is there when it is needed."""
