//! Recipe to rootfs to baked snapshot.
