"""What a program states about its sharding."""
