//! The resettable byte stream between host and agent, both ends.
