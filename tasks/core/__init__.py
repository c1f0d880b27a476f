"""Mathematics that several areas share."""
