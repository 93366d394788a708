//! What an index finds by cells must be all that meets the query.

use proptest::prelude::*;
use tessera_geo::{
    CellRange, Ellipsoid, Geometry, Line, Pace, Polygon, Position, Ring, covering, index_number, ranges,
};

fn position() -> impl Strategy<Value = Position> {
    // Poles, the meridian of 180° and the borders of the cube's faces among places anywhere.
    let longitude =
        prop_oneof![4 => -180.0..=180.0, 1 => Just(180.0), 1 => Just(-180.0), 1 => Just(0.0), 1 => Just(45.0)];
    let latitude = prop_oneof![4 => -90.0..=90.0, 1 => Just(90.0), 1 => Just(-90.0), 1 => Just(0.0)];
    (longitude, latitude).prop_map(|(longitude, latitude)| Position { longitude, latitude })
}

fn circle(center: Position, radius: f64, vertices: u32) -> Option<Ring> {
    let positions = Ellipsoid::WGS84.circle(center, radius, vertices).ok()?;
    Ring::new(positions.into_iter().map(Position::to_point).collect(), &Pace::endless()).ok()
}

fn shape() -> impl Strategy<Value = Geometry> {
    let radius = (0.0..7.0f64).prop_map(|exponent| 10f64.powf(exponent));
    prop_oneof![
        position().prop_map(|position| Some(Geometry::Point(position.to_point()))),
        prop::collection::vec(position(), 2..5).prop_map(|positions| {
            Line::new(positions.into_iter().map(Position::to_point).collect()).ok().map(Geometry::Line)
        }),
        (position(), radius.clone(), 3u32..70)
            .prop_map(|(center, radius, vertices)| Some(vec![circle(center, radius, vertices)?]))
            .prop_map(|rings| Polygon::new(rings?, &Pace::endless()).ok().map(Geometry::Polygon)),
        // This polygon has a hole.
        (position(), radius, 3u32..40)
            .prop_map(|(center, radius, vertices)| {
                Some(vec![circle(center, radius, vertices)?, circle(center, radius / 3.0, vertices)?])
            })
            .prop_map(|rings| Polygon::new(rings?, &Pace::endless()).ok().map(Geometry::Polygon)),
    ]
    .prop_filter_map("the positions make no shape", |shape| shape)
}

fn has(ranges: &[CellRange], cells: &[u64]) -> bool {
    let numbers = cells.iter().map(|cell| index_number(*cell));
    numbers.into_iter().any(|number| ranges.iter().any(|range| (range.first..=range.last).contains(&number)))
}

/// The nearest point was once made of what rounding leaves of a vector of no length, and lay anywhere.
#[test]
fn all_places_of_the_equator_are_as_far_from_a_pole() {
    let globe = Ellipsoid { equator_radius: 6_378_137.0, flattening: 0.0 };
    let at = |longitude, latitude| Position { longitude, latitude }.to_point();
    for west in (0..720).map(|step| f64::from(step) / 2.0 - 180.1) {
        for width in [0.3, 45.0, 108.5, 179.0] {
            let line = Geometry::Line(Line::new(vec![at(west, 0.0), at(west + width, 0.0)]).unwrap());
            for pole in [90.0, -90.0] {
                let distance = globe.distance(at(17.0, pole), &line);
                let expected = std::f64::consts::FRAC_PI_2 * globe.equator_radius;
                assert!((distance - expected).abs() < 0.001, "{distance} m to {width} degrees from {west}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn shapes_that_meet_have_cells_in_common(one in shape(), other in shape()) {
        let pace = Pace::endless();
        let meets = one.intersects(&other, &pace).unwrap();
        prop_assert_eq!(meets, other.intersects(&one, &pace).unwrap(), "it is the same from both sides");
        if meets {
            prop_assert!(has(&ranges(&one, &pace).unwrap(), &covering(&other, &pace).unwrap()));
            prop_assert!(has(&ranges(&other, &pace).unwrap(), &covering(&one, &pace).unwrap()));
        }
    }

    #[test]
    fn a_shape_is_found_where_it_is(shape in shape()) {
        let pace = Pace::endless();
        let cells = covering(&shape, &pace).unwrap();
        prop_assert!(!cells.is_empty() && cells.len() <= 8, "{} cells", cells.len());
        prop_assert!(has(&ranges(&shape, &pace).unwrap(), &cells));
    }

    #[test]
    fn what_is_at_a_distance_is_in_the_ring_of_that_distance(
        center in position(),
        shape in shape(),
        flattening in prop_oneof![Just(0.0), Just(1.0 / 298.257), 0.0..0.3],
    ) {
        let ellipsoid = Ellipsoid { equator_radius: 6_378_137.0, flattening };
        let center = center.to_point();
        let distance = ellipsoid.distance(center, &shape);
        let (inner, outer) = (0.9 * distance, 1.1 * distance + 1e-6);
        let (least, most) = (ellipsoid.angles(inner).0, ellipsoid.angles(outer).1);
        let ranges = CellRange::around(center, least, most, &Pace::endless()).unwrap();
        prop_assert!(has(&ranges, &covering(&shape, &Pace::endless()).unwrap()), "{distance} m");
    }
}
