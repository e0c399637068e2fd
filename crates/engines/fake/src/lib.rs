//! A plain child process behind the engine trait; for tests only.
