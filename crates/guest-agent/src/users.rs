//! Users and groups, read from /etc. The agent is static and calls no name service.

use std::{fs, io};

use atoll_protocol::types::{GuestCode, GuestRefusal};

use crate::{
    refusal::{from_io, refuse},
    sys::Credentials,
};

/// A user, with all that follows from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) home: String,
    pub(crate) shell: String,
    pub(crate) credentials: Credentials,
}

const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";
const DEFAULT_SHELL: &str = "/bin/sh";

impl User {
    /// Root, whether or not the machine has a user database.
    fn root() -> Self {
        Self {
            name: "root".to_owned(),
            home: "/root".to_owned(),
            shell: DEFAULT_SHELL.to_owned(),
            credentials: Credentials {
                uid: 0,
                gid: 0,
                groups: vec![0],
            },
        }
    }

    /// Looks a user up by name, or by number as text.
    pub(crate) fn find(name: &str) -> Result<Self, GuestRefusal> {
        let passwd = match fs::read_to_string(PASSWD) {
            Ok(passwd) => passwd,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(from_io(PASSWD, &error)),
        };
        let Some(mut user) = find_in(&passwd, name) else {
            return match name {
                "root" | "0" => Ok(Self::root()),
                _ => Err(refuse(
                    GuestCode::Invalid,
                    format!("user: there is no {name:?} in this sandbox"),
                )),
            };
        };
        // A machine without groups has no supplementary ones.
        let groups = fs::read_to_string(GROUP).unwrap_or_default();
        user.credentials.groups = groups_in(&groups, &user.name, user.credentials.gid);
        Ok(user)
    }
}

fn find_in(passwd: &str, name: &str) -> Option<User> {
    passwd.lines().find_map(|line| {
        let [login, _, uid, gid, _, home, shell] = line.split(':').collect::<Vec<_>>().try_into().ok()?;
        (login == name || uid == name).then_some(())?;
        let or_else = |text: &str, default: &str| if text.is_empty() { default } else { text }.to_owned();
        Some(User {
            name: login.to_owned(),
            home: or_else(home, "/"),
            shell: or_else(shell, DEFAULT_SHELL),
            credentials: Credentials {
                uid: uid.parse().ok()?,
                gid: gid.parse().ok()?,
                groups: Vec::new(),
            },
        })
    })
}

fn groups_in(groups: &str, user: &str, primary: u32) -> Vec<u32> {
    let supplementary = groups.lines().filter_map(|line| {
        let [_, _, gid, members] = line.split(':').collect::<Vec<_>>().try_into().ok()?;
        let gid: u32 = gid.parse().ok()?;
        (gid != primary && members.split(',').any(|member| member == user)).then_some(gid)
    });
    [primary].into_iter().chain(supplementary).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\nbroken line\nann:x:1000:100::/home/ann:\n";

    #[test]
    fn a_user_is_found_by_name_and_by_number() {
        let ann = find_in(PASSWD, "ann").expect("ann");
        assert_eq!((ann.home.as_str(), ann.shell.as_str()), ("/home/ann", "/bin/sh"));
        assert_eq!((ann.credentials.uid, ann.credentials.gid), (1000, 100));
        assert_eq!(find_in(PASSWD, "1000"), Some(ann));
        assert_eq!(find_in(PASSWD, "an"), None);
    }

    #[test]
    fn supplementary_groups_are_those_that_name_the_user() {
        let groups = "users:x:100:\nwheel:x:10:bob,ann\nannex:x:11:annika\nown:x:100:ann\n";
        assert_eq!(groups_in(groups, "ann", 100), [100, 10]);
    }
}
