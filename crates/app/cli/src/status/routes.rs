//! Routes in `equipoise status`.

use equipoise_api::wire::{FrontDoorStatus, RouteStatus};

use crate::table::{Align, Table};
use crate::view::View;

/// Routes of a front door that are shown: those with the most requests.
const SHOWN_MAX: usize = 20;

/// Requests by route. Writes nothing without a route.
pub(super) fn render(doors: &[FrontDoorStatus], view: View, out: &mut String) {
    let mut table = Table::new(&[
        ("ROUTE OF", Align::Left),
        ("ROUTE", Align::Left),
        ("LEADS TO", Align::Left),
        ("TOTAL", Align::Right),
    ]);
    let routed = doors.iter().filter(|door| !door.routes.is_empty());
    if routed.clone().next().is_none() {
        return;
    }
    for door in routed {
        let shown = busiest(&door.routes);
        for route in &shown {
            table.row(vec![
                (&door.name).into(),
                (&route.name).into(),
                leads_to(route).into(),
                route.requests_total.into(),
            ]);
        }
        let hidden = door.routes.len() - shown.len();
        if hidden > 0 {
            let more = format!("{hidden} more with fewer requests: --json");
            table.row(vec![(&door.name).into(), more.into(), "".into(), "".into()]);
        }
    }
    out.push('\n');
    table.render(view, out);
}

/// Where requests of a route go, and their copies.
fn leads_to(route: &RouteStatus) -> String {
    match &route.mirror {
        None => route.leads_to.clone(),
        Some(mirror) => format!("{}, copies to {}", route.leads_to, mirror.pool),
    }
}

/// The routes with the most requests, in their order.
fn busiest(routes: &[RouteStatus]) -> Vec<&RouteStatus> {
    let mut places: Vec<usize> = (0..routes.len()).collect();
    places.sort_by_key(|&place| std::cmp::Reverse(routes[place].requests_total));
    places.truncate(SHOWN_MAX);
    places.sort_unstable();
    places.into_iter().map(|place| &routes[place]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_routes_are_shown_in_their_order() {
        let route = |at: usize| RouteStatus {
            name: at.to_string(),
            leads_to: "p".into(),
            requests_total: at as u64 % 25,
            mirror: None,
        };
        let routes: Vec<_> = (0..30).map(route).collect();
        let shown = busiest(&routes);
        let names: Vec<_> = shown.iter().map(|route| &*route.name).collect();
        assert_eq!(names.len(), SHOWN_MAX);
        assert_eq!((names[0], names[SHOWN_MAX - 1]), ("5", "24"));
    }
}
