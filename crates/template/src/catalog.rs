//! The recipes that this installation knows.

use std::{collections::BTreeMap, io, path::Path};

use atoll_model::TemplateName;

use crate::{Recipe, RecipeError, Smoke};

/// A template's folder, as text. What `templates/*/` holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecipeFolder<'a> {
    /// The folder's name, which is the template's.
    pub name: &'a str,
    /// `template.toml`.
    pub template: &'a str,
    /// `smoke.toml`; empty when the folder has none.
    pub smoke: &'a str,
}

/// A recipe with its smoke tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) recipe: Recipe,
    pub(crate) smoke: Smoke,
}

/// All recipes, found by name or alias.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    entries: BTreeMap<TemplateName, Entry>,
    names: BTreeMap<TemplateName, TemplateName>,
}

impl Catalog {
    /// The built-in recipes, and those of a folder that holds one folder each. Of two with the same name the folder's counts.
    ///
    /// # Errors
    /// Any recipe that cannot be read or is not right, and names that two of them claim.
    pub fn read(built_in: &[RecipeFolder<'_>], folder: Option<&Path>) -> Result<Self, RecipeError> {
        let mut catalog = Self::default();
        for recipe in built_in {
            catalog.add(*recipe)?;
        }
        for name in folder.map(folders_of).transpose()?.unwrap_or_default() {
            let at = folder.unwrap_or(Path::new("")).join(&name);
            let template = text_of(&at.join("template.toml"))?.unwrap_or_default();
            let smoke = text_of(&at.join("smoke.toml"))?.unwrap_or_default();
            catalog.add(RecipeFolder {
                name: &name,
                template: &template,
                smoke: &smoke,
            })?;
        }
        catalog.index()?;
        Ok(catalog)
    }

    fn add(&mut self, folder: RecipeFolder<'_>) -> Result<(), RecipeError> {
        let file = format!("{}/template.toml", folder.name);
        let recipe = Recipe::parse(&file, folder.template)?;
        if recipe.name.as_str() != folder.name {
            return Err(RecipeError::Field {
                file,
                field: "name".to_owned(),
                rule: format!("is {}, which is not the name of its folder", recipe.name),
            });
        }
        let smoke = Smoke::parse(&format!("{}/smoke.toml", folder.name), folder.smoke)?;
        self.entries.insert(recipe.name.clone(), Entry { recipe, smoke });
        Ok(())
    }

    fn index(&mut self) -> Result<(), RecipeError> {
        for (name, entry) in &self.entries {
            for claimed in std::iter::once(name).chain(&entry.recipe.aliases) {
                if let Some(first) = self.names.insert(claimed.clone(), name.clone()) {
                    return Err(RecipeError::NameTwice {
                        name: claimed.to_string(),
                        first,
                        second: name.clone(),
                    });
                }
            }
        }
        Ok(())
    }

    /// The recipe of a name or alias.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Recipe> {
        self.entry(name).map(|entry| &entry.recipe)
    }

    /// All recipes in the order of their names.
    pub fn recipes(&self) -> impl Iterator<Item = &Recipe> {
        self.entries.values().map(|entry| &entry.recipe)
    }

    pub(crate) fn entry(&self, name: &str) -> Option<&Entry> {
        let name: TemplateName = name.parse().ok()?;
        self.entries.get(self.names.get(&name)?)
    }
}

/// Names of the folders in a folder that hold a recipe, sorted.
fn folders_of(folder: &Path) -> Result<Vec<String>, RecipeError> {
    let unreadable = |source| RecipeError::Unreadable {
        path: folder.to_owned(),
        source,
    };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        if entry.path().join("template.toml").is_file()
            && let Ok(name) = entry.file_name().into_string()
        {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn text_of(path: &Path) -> Result<Option<String>, RecipeError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(RecipeError::Unreadable {
            path: path.to_owned(),
            source,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: &str = "name = 'x'\naliases = ['y']\ndescription = 'd'\n[base]\nsuite = 'bookworm'\n";

    fn folder<'a>(name: &'a str, template: &'a str) -> RecipeFolder<'a> {
        RecipeFolder {
            name,
            template,
            smoke: "",
        }
    }

    #[test]
    fn a_recipe_is_found_by_name_and_alias() {
        let catalog = Catalog::read(&[folder("x", X)], None).unwrap();
        assert_eq!(catalog.get("y").unwrap().name.as_str(), "x");
        assert_eq!(catalog.get("x"), catalog.get("y"));
        assert!(catalog.get("z").is_none() && catalog.get("../x").is_none());
    }

    #[test]
    fn a_name_belongs_to_one_recipe() {
        let other = X.replace("'x'", "'z'");
        let error = Catalog::read(&[folder("x", X), folder("z", &other)], None).unwrap_err();
        assert!(matches!(error, RecipeError::NameTwice { .. }), "{error}");
        let error = Catalog::read(&[folder("q", X)], None).unwrap_err();
        assert!(error.to_string().contains("not the name of its folder"), "{error}");
    }

    #[test]
    fn a_folder_of_recipes_goes_before_the_built_in_ones() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("x")).unwrap();
        std::fs::write(home.path().join("x/template.toml"), X.replace("'d'", "'mine'")).unwrap();
        std::fs::create_dir(home.path().join("no-recipe")).unwrap();
        let catalog = Catalog::read(&[folder("x", X)], Some(home.path())).unwrap();
        assert_eq!(catalog.get("x").unwrap().description, "mine");
        assert!(Catalog::read(&[], Some(&home.path().join("nowhere"))).is_err());
    }
}
