use std::ffi::CString;
use std::mem::MaybeUninit;
use std::ptr;

use crate::options::{OptionRefused, Refuse};

/// A user of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl Account {
    /// Finds a user by name. The account has the user's primary group and no other groups.
    pub(super) fn find(name: &str, refuse: &Refuse) -> Result<Account, OptionRefused> {
        let accepted = "a user of this machine";
        let unknown = || refuse.with("user", name, accepted);
        let c_name = CString::new(name).map_err(|_| unknown())?;
        let mut entry = MaybeUninit::<libc::passwd>::uninit();
        let mut found = ptr::null_mut();
        let mut strings = vec![0; 16 << 10];
        // SAFETY: all pointers are valid for the call, `strings` for its length. The name ends with
        // NUL.
        let outcome = unsafe {
            libc::getpwnam_r(
                c_name.as_ptr(),
                entry.as_mut_ptr(),
                strings.as_mut_ptr(),
                strings.len(),
                &raw mut found,
            )
        };
        if outcome != 0 || found.is_null() {
            return Err(unknown());
        }
        // SAFETY: a non-null `found` points to `entry`, which the call filled.
        let entry = unsafe { entry.assume_init() };
        Ok(Account { uid: entry.pw_uid, gid: entry.pw_gid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name() {
        let refuse = Refuse("process");
        assert_eq!(Account::find("root", &refuse), Ok(Account { uid: 0, gid: 0 }));
        for name in ["no-such-user", "ro\0ot", ""] {
            let refused = Account::find(name, &refuse).unwrap_err().to_string();
            assert!(refused.contains("process.user"), "{refused}");
        }
    }
}
