//! What the product does: one file a use case, one actor a sandbox.
