"""Agree in a fleet: members, locks, leaders and live configuration, with ZooKeeper, Redis, or nothing to install."""
