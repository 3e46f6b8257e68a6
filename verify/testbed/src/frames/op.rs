//! The operations of the client protocol by their names.

macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// An operation that a client requests.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Op {
            $($(#[$doc])* $name,)*
            /// An operation without a name here, by its number.
            Other(i32),
        }

        impl Op {
            /// The operation with this number in the protocol.
            pub fn from_code(code: i32) -> Self {
                match code {
                    $($code => Self::$name,)*
                    code => Self::Other(code),
                }
            }

            /// Its number in the protocol.
            pub fn code(self) -> i32 {
                match self {
                    $(Self::$name => $code,)*
                    Self::Other(code) => code,
                }
            }
        }
    };
}

ops! {
    /// Creates a node.
    Create = 1,
    /// Deletes a node.
    Delete = 2,
    /// Asks for a node's stat.
    Exists = 3,
    /// Reads a node.
    GetData = 4,
    /// Writes a node.
    SetData = 5,
    /// Reads the access list of a node.
    GetAcl = 6,
    /// Writes the access list of a node.
    SetAcl = 7,
    /// Lists the children of a node.
    GetChildren = 8,
    /// Brings the server up to its leader.
    Sync = 9,
    /// Keeps the session alive.
    Ping = 11,
    /// Lists the children of a node, with its stat.
    GetChildren2 = 12,
    /// Checks the version of a node, in a multi.
    Check = 13,
    /// Runs several operations as one.
    Multi = 14,
    /// Creates a node and asks for its stat.
    Create2 = 15,
    /// Changes the ensemble.
    Reconfig = 16,
    /// Asks whether there are watches on a node.
    CheckWatches = 17,
    /// Removes watches from a node.
    RemoveWatches = 18,
    /// Creates a container.
    CreateContainer = 19,
    /// Deletes an empty container; servers send it to themselves.
    DeleteContainer = 20,
    /// Creates a node with a time to live.
    CreateTtl = 21,
    /// Runs several reads as one.
    MultiRead = 22,
    /// Authenticates.
    Auth = 100,
    /// Sets watches again after a reconnect.
    SetWatches = 101,
    /// A step of SASL.
    Sasl = 102,
    /// Lists the ephemeral nodes of the session.
    GetEphemerals = 103,
    /// Counts the nodes below a node.
    GetAllChildrenNumber = 104,
    /// Sets watches again after a reconnect, persistent ones as well.
    SetWatches2 = 105,
    /// Adds a persistent watch.
    AddWatch = 106,
    /// Asks for our identity as seen by the server.
    WhoAmI = 107,
    /// Begins a session; servers send it to themselves.
    CreateSession = -10,
    /// Ends the session.
    CloseSession = -11,
}

impl Op {
    /// Whether it goes through the quorum as a transaction ([`Op::Sync`] does not).
    pub fn is_write(self) -> bool {
        matches!(
            self,
            Self::Create
                | Self::Create2
                | Self::CreateContainer
                | Self::CreateTtl
                | Self::Delete
                | Self::DeleteContainer
                | Self::SetData
                | Self::SetAcl
                | Self::Multi
                | Self::Reconfig
                | Self::CreateSession
                | Self::CloseSession
        )
    }

    /// Whether its body begins with a path.
    pub(crate) fn has_path(self) -> bool {
        !matches!(
            self,
            Self::Multi
                | Self::MultiRead
                | Self::Ping
                | Self::Reconfig
                | Self::Auth
                | Self::Sasl
                | Self::SetWatches
                | Self::SetWatches2
                | Self::WhoAmI
                | Self::CreateSession
                | Self::CloseSession
                | Self::Other(_)
        )
    }
}
