//! The `Debug` of a type that shows no field.

/// Implements `Debug` for a type by its name alone, whatever its parameters are:
/// `debug_by_name!([C, F: Fallback] OrElseFuture<C, F>);`.
///
/// A derive would ask for `Debug` of every parameter, and a future has closures and services among
/// them.
macro_rules! debug_by_name {
    ([$($parameters:tt)*] $name:ident $($arguments:tt)*) => {
        impl<$($parameters)*> ::std::fmt::Debug for $name $($arguments)* {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    };
}
