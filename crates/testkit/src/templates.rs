//! Templates for the fake engine: the root directory is this host's own, which machines see through an overlay, and Python is
//! that of a virtual environment on it.

use std::{
    env,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use atoll_host::Program;
use atoll_template::{RecipeFolder, Templates};
use tokio::sync::OnceCell;

/// The names of the templates here.
const NAMES: [&str; 2] = ["code-interpreter", "base"];
/// How long the making of the virtual environment may take.
const DEADLINE: Duration = Duration::from_secs(600);

static RECIPES: OnceCell<Vec<RecipeFolder<'static>>> = OnceCell::const_new();

/// Templates as those of a release: `code-interpreter`, which keeps a Python warm, and `base`. No build can make them: their
/// root directory is [imported](import).
///
/// # Panics
/// The virtual environment can't be made.
pub async fn recipes() -> &'static [RecipeFolder<'static>] {
    RECIPES
        .get_or_init(async || {
            let python = python().await;
            let python = python.display();
            let warm =
                format!("[[warm]]\nlanguage = 'python'\nargv = ['{python}', '/opt/atoll/contexts/python/zygote.py']\n");
            // Once a process.
            let warmed = Box::leak((PLAIN[0].template.to_owned() + &warm).into_boxed_str());
            vec![folder(NAMES[0], warmed), PLAIN[1]]
        })
        .await
}

/// The same names without an interpreter: ready in milliseconds.
pub const PLAIN: [RecipeFolder<'static>; 2] = [
    folder(
        NAMES[0],
        "name = 'code-interpreter'\ndescription = 'This host.'\n[base]\nsuite = 'bookworm'\n",
    ),
    folder(
        NAMES[1],
        "name = 'base'\ndescription = 'This host.'\n[base]\nsuite = 'bookworm'\n",
    ),
];

const fn folder(name: &'static str, template: &'static str) -> RecipeFolder<'static> {
    RecipeFolder {
        name,
        template,
        smoke: "",
    }
}

/// Puts this host's root directory in the place of both templates' own, unless that was done before.
///
/// # Panics
/// The state folder can't be written.
pub async fn import(templates: &Templates, state_dir: &Path) {
    for name in NAMES {
        if templates.get(name).is_some_and(|template| template.baked.is_some()) {
            continue;
        }
        let root = state_dir.join("this-host");
        symlink("/", &root).expect("the state folder can be written");
        templates
            .import_rootfs(name, &root)
            .await
            .expect("a root directory is imported");
    }
}

/// The Python of a virtual environment with the same IPython as the real template, made when it is missing.
async fn python() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("a workspace");
    let mut program = Program::new(workspace.join("scripts/venv")).expect("its path is absolute");
    // pip must find its index as it does in a shell.
    for (name, value) in env::vars_os() {
        program.env(name, value);
    }
    program.arg(workspace.join("target/venvs/testkit"));
    program.arg(workspace.join("crates/testkit/requirements.txt"));
    let mut said = String::new();
    let ran = program.run(DEADLINE, |line| said.clone_from(&line.text)).await;
    ran.and_then(atoll_host::Finished::success)
        .expect("a virtual environment");
    PathBuf::from(said)
}
