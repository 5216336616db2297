"""Where the failover record lives."""
