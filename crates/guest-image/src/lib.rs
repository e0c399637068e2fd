//! The agent, the context drivers and the templates, as part of the program: a server needs no files beside its binary.
//!
//! A crate of its own, so that only who embeds them waits for the agent to be built.

use atoll_template::{GuestFile, GuestImage, RecipeFolder};

include!(concat!(env!("OUT_DIR"), "/embedded.rs"));

/// The agent, a static binary, and the drivers in `guest/contexts`.
#[must_use]
pub fn guest() -> GuestImage {
    let file = |&(path, bytes, executable): &(&'static str, &'static [u8], bool)| GuestFile {
        path: path.into(),
        bytes: bytes.into(),
        executable,
    };
    GuestImage::new(FILES.iter().map(file).collect())
}

/// The recipes in `templates`.
#[must_use]
pub fn recipes() -> &'static [RecipeFolder<'static>] {
    RECIPES
}

#[cfg(test)]
mod tests {
    use atoll_template::Catalog;

    use super::*;

    #[test]
    fn every_embedded_recipe_is_right_and_found_by_its_aliases() {
        let catalog = Catalog::read(recipes(), None).unwrap();
        assert_eq!(catalog.get("ubuntu-24.04").unwrap().name.as_str(), "base");
        assert_eq!(catalog.get("python").unwrap().name.as_str(), "code-interpreter");
    }

    #[test]
    fn the_agent_is_a_static_program_and_the_drivers_are_there() {
        let agent = FILES.iter().find(|file| file.0 == "agent").unwrap();
        assert!(agent.2 && agent.1.starts_with(b"\x7fELF"));
        let interpreter = b"/lib64/ld-linux";
        assert!(!agent.1.windows(interpreter.len()).any(|window| window == interpreter));
        assert!(FILES.iter().any(|file| file.0 == "contexts/python/zygote.py"));
        assert!(FILES.iter().all(|file| !file.0.contains("tests/")));
    }
}
