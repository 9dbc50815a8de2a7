//! The `Debug` of a type that shows few of its fields, or none.

/// Implements `Debug` for a type by its name and the listed fields, whatever its parameters are:
/// `debug_by_name!([C, F: Fallback] OrElseFuture<C, F>);`, or with fields
/// `debug_by_name!([S: fmt::Debug, F] CountBody<S, F>: service);`.
///
/// A derive would ask for `Debug` of every parameter, and a future has closures and services among
/// them.
macro_rules! debug_by_name {
    (
        [$($parameters:tt)*]
        $name:ident $(<$($argument:tt),+>)? $(: $($field:ident),+)?
    ) => {
        impl<$($parameters)*> ::std::fmt::Debug for $name $(<$($argument),+>)? {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_struct(stringify!($name))
                    $($(.field(stringify!($field), &self.$field))+)?
                    .finish_non_exhaustive()
            }
        }
    };
}
