"""Reports as text: statistics, differences, sharding, layouts."""
