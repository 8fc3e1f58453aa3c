"""The work itself: lease, fetch, handle, settle. Knows the roles' contracts, never a technology."""
