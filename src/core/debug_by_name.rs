//! Implements `Debug` for types that show few of their fields, or no fields.

/// Implements `Debug` for a type with its name and the listed fields, for all type parameters:
/// `debug_by_name!([C, F: Fallback] OrElseFuture<C, F>);`, or with fields
/// `debug_by_name!([S: fmt::Debug, F] RateLimit<S, F>: inner);`.
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
