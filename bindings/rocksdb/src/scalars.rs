//! Options that are numbers: setters and getters from tables.
//!
//! Each object of options has a [`Scalars`], which remembers what the program has set. The options
//! that change something are read from it by name; a getter of an option that was not set returns
//! the default of the table, which is RocksDB's for common options and 0 for the others.

use std::collections::BTreeMap;

/// Values by the name of the option.
#[derive(Debug, Clone, Default)]
pub struct Scalars(BTreeMap<&'static str, u64>);

impl Scalars {
    /// Remembers a value.
    pub fn set(&mut self, name: &'static str, value: impl Scalar) {
        self.0.insert(name, value.to_bits());
    }

    /// The value, if the program has set it.
    pub fn get<T: Scalar>(&self, name: &str) -> Option<T> {
        self.0.get(name).copied().map(T::from_bits)
    }

    /// Whether the program has set the option to a value other than 0.
    pub fn is_set(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|bits| *bits != 0)
    }

    /// Forgets a value.
    pub fn forget(&mut self, name: &str) {
        self.0.remove(name);
    }
}

/// Types of options.
pub trait Scalar: Copy {
    /// The value as 64 bits.
    fn to_bits(self) -> u64;
    /// The value of 64 bits.
    fn from_bits(bits: u64) -> Self;
}

macro_rules! integers {
    ($($type:ty)+) => { $(
        impl Scalar for $type {
            fn to_bits(self) -> u64 {
                self as u64
            }
            fn from_bits(bits: u64) -> Self {
                bits as $type
            }
        }
    )+ };
}
integers!(u8 i8 i32 u32 u64 i64 usize);

impl Scalar for f64 {
    fn to_bits(self) -> u64 {
        f64::to_bits(self)
    }
    fn from_bits(bits: u64) -> Self {
        f64::from_bits(bits)
    }
}

/// An object that has options.
pub trait HasScalars {
    /// Its options.
    fn scalars(&self) -> &Scalars;
    /// Its options, to be set.
    fn scalars_mut(&mut self) -> &mut Scalars;
}

/// Options of which all are numbers.
#[derive(Debug, Clone, Default)]
pub struct Plain(Scalars);

impl HasScalars for Plain {
    fn scalars(&self) -> &Scalars {
        &self.0
    }
    fn scalars_mut(&mut self) -> &mut Scalars {
        &mut self.0
    }
}

/// Exports setters and getters:
///
/// ```text
///   [type]:             setter and getter of this type
///   [type as other]:    the getter returns another type
///   [set type]:         setter alone
///   [get type]:         getter alone
/// ```
///
/// followed by names, with a default if it is not 0. The second argument is what the names of the
/// functions begin with. The third one, if there is one, is a list of the names and types.
macro_rules! scalars {
    ($object:ty, $prefix:literal, $names:ident {
        $($kind:tt: $($field:ident $(= $default:expr)?),+;)+
    }) => {
        /// The names of the options and their types.
        pub(crate) const $names: &[(&str, &str)] =
            &[$($((stringify!($field), crate::scalars::scalars!(@kind $kind)),)+)+];
        crate::scalars::scalars!($object, $prefix {
            $($kind: $($field $(= $default)?),+;)+
        });
    };
    ($object:ty, $prefix:literal {
        $($kind:tt: $($field:ident $(= $default:expr)?),+;)+
    }) => {
        $(crate::scalars::scalars!(@row $kind $object, $prefix, $($field $(= $default)?),+);)+
    };
    (@kind $kind:tt) => { stringify!($kind) };
    (@row $kind:tt $object:ty, $prefix:literal, $($field:ident $(= $default:expr)?),+) => {
        $(crate::scalars::scalars!(@one $kind $object, $prefix, $field $(= $default)?);)+
    };
    (@one [set $set:ty] $($rest:tt)+) => { crate::scalars::scalars!(@set $set, $($rest)+); };
    (@one [get $get:ty] $($rest:tt)+) => { crate::scalars::scalars!(@get $get, $($rest)+); };
    (@one [$set:tt as $get:ty] $($rest:tt)+) => {
        crate::scalars::scalars!(@set $set, $($rest)+);
        crate::scalars::scalars!(@get $get, $($rest)+);
    };
    (@one [$type:tt] $($rest:tt)+) => {
        crate::scalars::scalars!(@set $type, $($rest)+);
        crate::scalars::scalars!(@get $type, $($rest)+);
    };
    (@set $type:ty, $object:ty, $prefix:literal, $field:ident $(= $default:expr)?) => {
        const _: () = {
            #[unsafe(export_name = concat!($prefix, "_set_", stringify!($field)))]
            extern "C" fn set(object: &mut $object, value: $type) {
                crate::scalars::HasScalars::scalars_mut(object).set(stringify!($field), value);
            }
        };
    };
    (@get $type:ty, $object:ty, $prefix:literal, $field:ident $(= $default:expr)?) => {
        const _: () = {
            #[unsafe(export_name = concat!($prefix, "_get_", stringify!($field)))]
            extern "C" fn get(object: &$object) -> $type {
                let default = [$($default as $type,)? Default::default()][0];
                let set = crate::scalars::HasScalars::scalars(object).get(stringify!($field));
                set.unwrap_or(default)
            }
        };
    };
}

/// Exports the creation and the destruction of options that are [`Plain`].
macro_rules! plain_options {
    ($($create:ident $destroy:ident;)+) => { $(
        #[doc = "New options."]
        #[unsafe(no_mangle)]
        pub extern "C" fn $create() -> Box<crate::scalars::Plain> {
            Box::default()
        }

        #[doc = "Frees options."]
        #[unsafe(no_mangle)]
        pub extern "C" fn $destroy(options: Option<Box<crate::scalars::Plain>>) {
            drop(options);
        }
    )+ };
}

pub(crate) use {plain_options, scalars};
