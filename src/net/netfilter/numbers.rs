//! Numbers of the kernel's netlink interface, under the kernel's names (linux/netfilter/nf_tables.h, nfnetlink.h,
//! nfnetlink_conntrack.h). Only numbers that podprobe uses are listed.

/// Types of messages: the subsystem in the high byte, the operation in the low byte.
pub(super) mod message {
    const NF_TABLES: u16 = 10 << 8;
    const CONNTRACK: u16 = 1 << 8;
    pub(crate) const ERROR: u16 = 2;
    pub(crate) const DONE: u16 = 3;
    pub(crate) const BATCH_BEGIN: u16 = 0x10;
    pub(crate) const BATCH_END: u16 = 0x11;
    pub(crate) const NEWTABLE: u16 = NF_TABLES;
    pub(crate) const GETTABLE: u16 = NF_TABLES | 1;
    pub(crate) const DELTABLE: u16 = NF_TABLES | 2;
    pub(crate) const NEWCHAIN: u16 = NF_TABLES | 3;
    pub(crate) const GETCHAIN: u16 = NF_TABLES | 4;
    pub(crate) const DELCHAIN: u16 = NF_TABLES | 5;
    pub(crate) const NEWRULE: u16 = NF_TABLES | 6;
    pub(crate) const DELRULE: u16 = NF_TABLES | 8;
    pub(crate) const NEWSET: u16 = NF_TABLES | 9;
    pub(crate) const GETSET: u16 = NF_TABLES | 10;
    pub(crate) const DELSET: u16 = NF_TABLES | 11;
    pub(crate) const NEWSETELEM: u16 = NF_TABLES | 12;
    pub(crate) const DELSETELEM: u16 = NF_TABLES | 14;
    pub(crate) const NEWGEN: u16 = NF_TABLES | 15;
    pub(crate) const GETGEN: u16 = NF_TABLES | 16;
    pub(crate) const CT_GET: u16 = CONNTRACK | 1;
    pub(crate) const CT_DELETE: u16 = CONNTRACK | 2;
}

/// Flags in the header of a message (`nlmsg_flags`).
pub(super) mod flag {
    pub(crate) const REQUEST: u16 = 0x1;
    pub(crate) const ACK: u16 = 0x4;
    pub(crate) const DUMP_INTR: u16 = 0x10;
    pub(crate) const DUMP: u16 = 0x300;
    pub(crate) const CREATE: u16 = 0x400;
    pub(crate) const APPEND: u16 = 0x800;
}

/// Attributes of a table. Each enum of attributes in the kernel's headers has a module of its own in this file.
pub(super) mod table {
    pub(crate) const NAME: u16 = 1;
    pub(crate) const FLAGS: u16 = 2;
    pub(crate) const USE: u16 = 3;
    pub(crate) const HANDLE: u16 = 4;
    pub(crate) const USERDATA: u16 = 6;
}
pub(super) mod chain {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const HANDLE: u16 = 2;
    pub(crate) const NAME: u16 = 3;
    pub(crate) const HOOK: u16 = 4;
    pub(crate) const POLICY: u16 = 5;
    pub(crate) const USE: u16 = 6;
    pub(crate) const TYPE: u16 = 7;
}
pub(super) mod hook {
    pub(crate) const NUMBER: u16 = 1;
    pub(crate) const PRIORITY: u16 = 2;
}
pub(super) mod rule {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const CHAIN: u16 = 2;
    pub(crate) const EXPRESSIONS: u16 = 4;
}
pub(super) mod list {
    pub(crate) const ELEMENT: u16 = 1;
}
pub(super) mod expr {
    pub(crate) const NAME: u16 = 1;
    pub(crate) const DATA: u16 = 2;
}
pub(super) mod data {
    pub(crate) const VALUE: u16 = 1;
    pub(crate) const VERDICT: u16 = 2;
}
pub(super) mod verdict {
    pub(crate) const CODE: u16 = 1;
    pub(crate) const CHAIN: u16 = 2;
}
pub(super) mod set {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const NAME: u16 = 2;
    pub(crate) const FLAGS: u16 = 3;
    pub(crate) const KEY_TYPE: u16 = 4;
    pub(crate) const KEY_LEN: u16 = 5;
    pub(crate) const DATA_TYPE: u16 = 6;
    pub(crate) const DATA_LEN: u16 = 7;
    pub(crate) const DESC: u16 = 9;
    pub(crate) const ID: u16 = 10;
    pub(crate) const TIMEOUT: u16 = 11;
    pub(crate) const USERDATA: u16 = 13;
    pub(crate) const HANDLE: u16 = 16;
    pub(crate) const DESC_SIZE: u16 = 1;
    pub(crate) const DESC_CONCAT: u16 = 2;
    pub(crate) const FIELD_LEN: u16 = 1;
}
pub(super) mod set_flag {
    pub(crate) const ANONYMOUS: u32 = 0x1;
    pub(crate) const CONSTANT: u32 = 0x2;
    pub(crate) const INTERVAL: u32 = 0x4;
    pub(crate) const MAP: u32 = 0x8;
    pub(crate) const TIMEOUT: u32 = 0x10;
    pub(crate) const EVAL: u32 = 0x20;
    pub(crate) const CONCAT: u32 = 0x80;
}
pub(super) mod elements {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const SET: u16 = 2;
    pub(crate) const ELEMENTS: u16 = 3;
    pub(crate) const SET_ID: u16 = 4;
}
pub(super) mod element {
    pub(crate) const KEY: u16 = 1;
    pub(crate) const DATA: u16 = 2;
    pub(crate) const FLAGS: u16 = 3;
    pub(crate) const TIMEOUT: u16 = 4;
    pub(crate) const KEY_END: u16 = 10;
    pub(crate) const INTERVAL_END: u32 = 1;
}
pub(super) mod generation {
    pub(crate) const ID: u16 = 1;
}

/// Attributes of connection tracking.
pub(super) mod ct {
    pub(crate) const TUPLE_ORIG: u16 = 1;
    pub(crate) const TUPLE_REPLY: u16 = 2;
    pub(crate) const ID: u16 = 12;
    pub(crate) const FILTER: u16 = 25;
    pub(crate) const TUPLE_IP: u16 = 1;
    pub(crate) const TUPLE_PROTO: u16 = 2;
    pub(crate) const IP_V4_SRC: u16 = 1;
    pub(crate) const IP_V4_DST: u16 = 2;
    pub(crate) const IP_V6_SRC: u16 = 3;
    pub(crate) const IP_V6_DST: u16 = 4;
    pub(crate) const PROTO_NUM: u16 = 1;
    pub(crate) const PROTO_SRC_PORT: u16 = 2;
    pub(crate) const PROTO_DST_PORT: u16 = 3;
    pub(crate) const FILTER_ORIG_FLAGS: u16 = 1;
    /// `CTA_FILTER_F_CTA_PROTO_NUM`: the kernel compares only the number of the protocol.
    pub(crate) const FILTER_PROTO_NUM: u32 = 1 << 3;
}
