//! What a recipe's values must be. Each refusal names its field.

use crate::RecipeError;

use super::{Recipe, Size, UserEntry};

/// Checks a whole recipe; the first fault is told.
pub(super) fn check(file: &str, recipe: &Recipe) -> Result<(), RecipeError> {
    let fault = |field: String, rule: &str| {
        Err(RecipeError::Field {
            file: file.to_owned(),
            field,
            rule: rule.to_owned(),
        })
    };
    for (field, value, allowed, rule) in plain_values(recipe) {
        if !allowed(value) {
            return fault(field, rule);
        }
    }
    let Size {
        cpu,
        memory_mb,
        disk_mb,
        pids,
    } = recipe.size;
    for (field, fits, rule) in [
        ("size.cpu", (1..=64).contains(&cpu), "is not 1 to 64"),
        (
            "size.memory_mb",
            (128..=65_536).contains(&memory_mb),
            "is not 128 to 65536",
        ),
        (
            "size.disk_mb",
            (64..=1_048_576).contains(&disk_mb),
            "is not 64 to 1048576",
        ),
        ("size.pids", (64..=32_768).contains(&pids), "is not 64 to 32768"),
    ] {
        if !fits {
            return fault(field.to_owned(), rule);
        }
    }
    for (index, user) in recipe.users.iter().enumerate() {
        if !(1000..60_000).contains(&user.uid) {
            return fault(format!("user[{index}].uid"), "is not 1000 to 59999");
        }
        let twin = |other: &UserEntry| other.uid == user.uid || other.name == user.name;
        if recipe.users[..index].iter().any(twin) {
            return fault(format!("user[{index}]"), "has the name or the uid of another user");
        }
    }
    for (field, owner) in owners(recipe) {
        if owner != "root" && !recipe.users.iter().any(|user| user.name == owner) {
            return fault(field, "is neither root nor a user of this recipe");
        }
    }
    for (index, warm) in recipe.warm_ups.iter().enumerate() {
        if warm.argv.first().is_none_or(|program| !is_path(program)) {
            return fault(
                format!("warm[{index}].argv"),
                "does not begin with the absolute path of a program",
            );
        }
        if recipe.warm_ups[..index]
            .iter()
            .any(|other| other.language == warm.language)
        {
            return fault(format!("warm[{index}].language"), "is warmed twice");
        }
    }
    Ok(())
}

type Rule<'a> = (String, &'a str, fn(&str) -> bool, &'static str);

/// Every text of a recipe with the form that it must have.
fn plain_values(recipe: &Recipe) -> Vec<Rule<'_>> {
    let mut rules: Vec<Rule<'_>> = vec![(
        "base.suite".into(),
        &recipe.base.suite,
        is_word,
        "is not a Debian suite's name, as in bookworm",
    )];
    let path_rule = "is not an absolute path without . and ..";
    for (index, package) in recipe.base.packages.iter().enumerate() {
        rules.push((
            format!("base.packages[{index}]"),
            package,
            is_word,
            "is not a Debian package's name",
        ));
    }
    for (index, package) in recipe.python.packages.iter().enumerate() {
        rules.push((
            format!("python.packages[{index}]"),
            package,
            is_pin,
            "is not pinned as name==version",
        ));
    }
    for (index, user) in recipe.users.iter().enumerate() {
        rules.push((format!("user[{index}].name"), &user.name, is_word, "is not a user name"));
        rules.push((format!("user[{index}].home"), &user.home, is_path, path_rule));
        rules.push((format!("user[{index}].shell"), &user.shell, is_path, path_rule));
    }
    for (index, folder) in recipe.folders.iter().enumerate() {
        rules.push((format!("folder[{index}].path"), &folder.path, is_path, path_rule));
        rules.push((
            format!("folder[{index}].mode"),
            &folder.mode,
            is_mode,
            "is not octal, as in 0755",
        ));
    }
    for (index, file) in recipe.files.iter().enumerate() {
        rules.push((format!("file[{index}].path"), &file.path, is_path, path_rule));
        rules.push((
            format!("file[{index}].mode"),
            &file.mode,
            is_mode,
            "is not octal, as in 0644",
        ));
    }
    for (name, value) in &recipe.env {
        rules.push((format!("env.{name}"), name, is_variable, "is not a variable's name"));
        rules.push((format!("env.{name}"), value, is_line, "holds a line end or a NUL byte"));
    }
    for (index, warm) in recipe.warm_ups.iter().enumerate() {
        rules.push((
            format!("warm[{index}].language"),
            &warm.language,
            is_word,
            "is not a plain word",
        ));
    }
    rules
}

fn owners(recipe: &Recipe) -> impl Iterator<Item = (String, &str)> {
    let folders = recipe.folders.iter().enumerate();
    let files = recipe.files.iter().enumerate();
    let warms = recipe.warm_ups.iter().enumerate();
    folders
        .map(|(index, folder)| (format!("folder[{index}].owner"), folder.owner.as_str()))
        .chain(files.map(|(index, file)| (format!("file[{index}].owner"), file.owner.as_str())))
        .chain(warms.map(|(index, warm)| (format!("warm[{index}].user"), warm.user.as_str())))
}

/// Starts with a letter or digit, so that it can never be taken for an option.
fn is_word(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphanumeric())
        && text.len() <= 100
        && bytes.all(|b| b.is_ascii_alphanumeric() || b"+.-_".contains(&b))
}

fn is_pin(text: &str) -> bool {
    text.split_once("==").is_some_and(|(name, version)| {
        let name = name.split_once('[').map_or(name, |(name, _extras)| name);
        is_word(name) && is_word(version)
    })
}

fn is_path(text: &str) -> bool {
    text.len() > 1
        && text.starts_with('/')
        && is_line(text)
        && text[1..]
            .split('/')
            .all(|part| !part.is_empty() && part != "." && part != "..")
}

fn is_mode(text: &str) -> bool {
    (3..=4).contains(&text.len()) && text.bytes().all(|b| (b'0'..=b'7').contains(&b))
}

fn is_variable(text: &str) -> bool {
    !text.is_empty()
        && !text.as_bytes()[0].is_ascii_digit()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn is_line(text: &str) -> bool {
    !text.bytes().any(|b| b == b'\n' || b == b'\r' || b == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "name = 'x'\ndescription = 'd'\n[base]\nsuite = 'bookworm'\n";

    fn fault(extra: &str) -> String {
        let text = format!("{SMALL}{extra}");
        Recipe::parse("x/template.toml", &text).map_or_else(|error| error.to_string(), |_| "fine".to_owned())
    }

    #[test]
    fn the_smallest_recipe_is_fine() {
        assert_eq!(fault(""), "fine");
    }

    #[test]
    fn an_unknown_or_missing_field_is_named() {
        assert!(fault("sweet = 1").contains("sweet"));
        let missing = Recipe::parse("x", "name = 'x'\n[base]\nsuite = 'bookworm'").unwrap_err();
        assert!(missing.to_string().contains("description"), "{missing}");
    }

    #[test]
    fn each_bad_value_names_its_field() {
        let user = "[[user]]\nname = 'u'\nuid = 1000\nhome = '/h'\n";
        for (extra, field) in [
            ("packages = ['-o']".to_owned(), "base.packages[0]"),
            ("packages = ['a b']".to_owned(), "base.packages[0]"),
            ("[python]\npackages = ['numpy']".to_owned(), "python.packages[0]"),
            ("[python]\npackages = ['-r==x']".to_owned(), "python.packages[0]"),
            ("[[folder]]\npath = 'work'".to_owned(), "folder[0].path"),
            ("[[folder]]\npath = '/a/../b'".to_owned(), "folder[0].path"),
            ("[[folder]]\npath = '/'".to_owned(), "folder[0].path"),
            ("[[folder]]\npath = '/a'\nmode = '9'".to_owned(), "folder[0].mode"),
            ("[[folder]]\npath = '/a'\nowner = 'u'".to_owned(), "folder[0].owner"),
            (
                "[[file]]\npath = '/a'\ntext = ''\nmode = '0x'".to_owned(),
                "file[0].mode",
            ),
            (format!("{user}{user}"), "user[1]"),
            (user.replace("1000", "5"), "user[0].uid"),
            (user.replace("'u'", "'-u'"), "user[0].name"),
            ("[env]\nA-B = 'x'".to_owned(), "env.A-B"),
            ("[env]\nA = \"x\\ny\"".to_owned(), "env.A"),
            ("[size]\ncpu = 0".to_owned(), "size.cpu"),
            ("[size]\nmemory_mb = 1".to_owned(), "size.memory_mb"),
            (
                "[[warm]]\nlanguage = 'p'\nargv = ['python3']".to_owned(),
                "warm[0].argv",
            ),
            (
                "[[warm]]\nlanguage = 'p'\nargv = ['/p']\nuser = 'u'".to_owned(),
                "warm[0].user",
            ),
        ] {
            let told = fault(&extra);
            assert!(told.contains(field), "{extra}: {told}");
        }
    }

    #[test]
    fn what_a_recipe_says_decides_its_digests_and_nothing_else() {
        let parse = |text: &str| Recipe::parse("x", text).unwrap();
        let plain = parse(SMALL);
        let commented = parse(&format!("# a comment\n{SMALL}"));
        assert_eq!(plain.rootfs_digest(), commented.rootfs_digest());
        let sized = parse(&format!("{SMALL}[size]\ncpu = 4"));
        assert_eq!(plain.rootfs_digest(), sized.rootfs_digest());
        assert_ne!(plain.bake_digest(), sized.bake_digest());
        let packed = parse(&format!("{SMALL}packages = ['curl']"));
        assert_ne!(plain.rootfs_digest(), packed.rootfs_digest());
        assert_ne!(plain.rootfs_digest(), plain.bake_digest());
    }
}
