//! Owns the form of a guard: a [`Hold`](crate::hold::Hold) under the name of what it guards.

/// Makes a guard type, with what all guards can do.
macro_rules! guard {
    ($(#[$doc:meta])* $name:ident) => {
        guard! { $(#[$doc])* $name, release }
    };
    ($(#[$doc:meta])* $name:ident, $release:ident) => {
        $(#[$doc])*
        ///
        /// What it can tell, it tells as a [`Hold`](crate::Hold).
        #[derive(Debug)]
        #[must_use = "dropping the guard releases the lock"]
        pub struct $name(crate::hold::Hold);

        impl $name {
            /// Releases the lock and waits until the servers have confirmed it.
            ///
            /// It ends when trust in the hold ends at the latest, so within one session timeout.
            ///
            /// # Cancel safety
            ///
            /// Dropping the future releases in the background.
            ///
            /// # Errors
            ///
            /// [`Error::Lost`](crate::Error::Lost) if the lock was lost before: somebody else may have held it meanwhile.
            /// [`Error::NoAuth`](crate::Error::NoAuth) if the ACLs let us create nodes but not delete them: for all other
            /// sessions the lock stays held until this one ends.
            ///
            /// # Panics
            ///
            /// May panic outside a tokio runtime with timers; see [Runtimes](crate#runtimes).
            pub async fn $release(self) -> crate::error::Result<()> {
                self.0.release().await
            }
        }

        impl std::ops::Deref for $name {
            type Target = crate::hold::Hold;

            fn deref(&self) -> &crate::hold::Hold {
                &self.0
            }
        }
    };
}

pub(crate) use guard;
