//! The sizes of the tuples that the crate accepts.

/// Calls a macro for each size of a tuple, two to eight: with the size, and with a type and an
/// index for each member, such as `name!(2: A 0, B 1);`.
macro_rules! for_each_tuple {
    ($name:ident) => {
        $name!(2: A 0, B 1);
        $name!(3: A 0, B 1, C 2);
        $name!(4: A 0, B 1, C 2, D 3);
        $name!(5: A 0, B 1, C 2, D 3, E 4);
        $name!(6: A 0, B 1, C 2, D 3, E 4, F 5);
        $name!(7: A 0, B 1, C 2, D 3, E 4, F 5, G 6);
        $name!(8: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
    };
}
