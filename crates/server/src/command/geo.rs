//! Positions on the earth, in sorted sets: GEOADD, GEOSEARCH and related commands.
//!
//! The score of a member is its cell ([`super::geo_cells`]). A search reads the cells that cover
//! the bounding box of the area, and measures the distance of each member in them.
//!
//! Source: the documentation of Redis's geospatial commands.

use siltstone_collections::{SortedSet, WriteSet};

use super::context::Context;
use super::definition::{ONE_KEY, READ, TWO_KEYS, WRITE};
use super::elements::{NOT_A_FLOAT, count_from_one, float, integer, is};
use super::entry::{self, Command};
use super::failure::{Failure, Outcome, SYNTAX, reply_error};
use super::geo_cells::{self, Area, Point};
use crate::resp::{Args, RespVersion};

pub(super) fn commands() -> Vec<Command> {
    let command = |name, arity, flags, keys, handler, summary| {
        entry::command("geo", name, arity, flags, keys, handler, summary)
    };
    vec![
        command("geoadd", -5, WRITE, ONE_KEY, geoadd, "Adds members with positions."),
        command("geopos", -2, READ, ONE_KEY, geopos, "Returns the positions of members."),
        command("geodist", -4, READ, ONE_KEY, geodist, "Returns the distance of two members."),
        command("geohash", -2, READ, ONE_KEY, geohash, "Returns positions as geohashes."),
        command("geosearch", -7, READ, ONE_KEY, geosearch, "Returns members within an area."),
        command(
            "geosearchstore",
            -8,
            WRITE,
            TWO_KEYS,
            geosearchstore,
            "Stores members within an area.",
        ),
    ]
}

/// Metres per unit.
fn unit(word: &[u8]) -> Result<f64, Failure> {
    match word {
        word if is(word, "m") => Ok(1.0),
        word if is(word, "km") => Ok(1000.0),
        word if is(word, "ft") => Ok(0.3048),
        word if is(word, "mi") => Ok(1609.34),
        _ => Err(reply_error("ERR unsupported unit provided. please use M, KM, FT, MI")),
    }
}

pub(super) fn point(longitude: &[u8], latitude: &[u8]) -> Result<Point, Failure> {
    let parse = |word| float(word).ok_or(NOT_A_FLOAT);
    let (longitude, latitude) = (parse(longitude)?, parse(latitude)?);
    Point::new(longitude, latitude).ok_or_else(|| {
        format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}").into()
    })
}

fn geoadd(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (mut only_new, mut only_existing, mut counts_changes) = (false, false, false);
    let mut first = 2;
    for word in args.from(2).iter() {
        match word {
            word if is(word, "nx") => only_new = true,
            word if is(word, "xx") => only_existing = true,
            word if is(word, "ch") => counts_changes = true,
            _ => break,
        }
        first += 1;
    }
    let triples = args.from(first);
    if triples.is_empty() || !triples.len().is_multiple_of(3) || only_new && only_existing {
        return Err(SYNTAX);
    }
    let mut members = Vec::with_capacity(triples.len() / 3);
    for at in (0..triples.len()).step_by(3) {
        let point = point(&triples[at], &triples[at + 1])?;
        members.push((&triples[at + 2], point.score()));
    }
    let (added, changed) = context.change(&args[1], |writes| {
        let mut set = SortedSet::open(writes, &args[1])?;
        let (mut added, mut changed) = (0, 0);
        for (member, score) in members {
            match set.score(member)? {
                None if only_existing => {}
                Some(_) if only_new => {}
                Some(old) if old == score => {}
                old => {
                    set.insert(member, score)?;
                    added += usize::from(old.is_none());
                    changed += usize::from(old.is_some());
                }
            }
        }
        Ok((added, changed))
    })?;
    context.replies.count(if counts_changes { added + changed } else { added });
    Ok(())
}

/// Positions of members.
fn positions(
    context: &mut Context<'_>,
    key: &[u8],
    members: Args<'_>,
) -> Result<Vec<Option<Point>>, Failure> {
    context.view(key, |writes| {
        let set = SortedSet::open(writes, key)?;
        let mut points = Vec::with_capacity(members.len());
        for member in members.iter() {
            points.push(set.score(member)?.map(Point::of_score));
        }
        Ok(points)
    })
}

/// Replies with a coordinate, exactly.
fn reply_coordinate(context: &mut Context<'_>, value: f64) {
    let text = format!("{value:.17}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    match context.replies.version {
        RespVersion::Resp2 => context.replies.bulk(text.as_bytes()),
        RespVersion::Resp3 => {
            context.replies.raw(b",");
            context.replies.raw(text.as_bytes());
            context.replies.raw(b"\r\n");
        }
    }
}

fn reply_point(context: &mut Context<'_>, point: Point) {
    context.replies.array(2);
    reply_coordinate(context, point.longitude);
    reply_coordinate(context, point.latitude);
}

fn reply_distance(context: &mut Context<'_>, metres: f64, unit: f64) {
    context.replies.bulk(format!("{:.4}", metres / unit).as_bytes());
}

fn geopos(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let points = positions(context, &args[1], args.from(2))?;
    context.replies.array(points.len());
    for point in points {
        match point {
            Some(point) => reply_point(context, point),
            None => context.replies.null_array(),
        }
    }
    Ok(())
}

fn geodist(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if args.len() > 5 {
        return Err(SYNTAX);
    }
    let unit = args.get(4).map_or(Ok(1.0), unit)?;
    let points = context.view(&args[1], |writes| {
        let set = SortedSet::open(writes, &args[1])?;
        Ok((set.score(&args[2])?, set.score(&args[3])?))
    })?;
    match points {
        (Some(a), Some(b)) => {
            let metres = Point::of_score(a).distance(Point::of_score(b));
            reply_distance(context, metres, unit);
        }
        _ => context.replies.null(),
    }
    Ok(())
}

fn geohash(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let points = positions(context, &args[1], args.from(2))?;
    context.replies.array(points.len());
    for point in points {
        let hash = point.map(Point::geohash);
        context.replies.bulk_or_null(hash.as_ref().map(<[u8; 11]>::as_slice));
    }
    Ok(())
}

/// A parsed GEOSEARCH.
#[derive(Default)]
pub(super) struct Search<'a> {
    from_member: Option<&'a [u8]>,
    from_point: Option<Point>,
    /// Width and height of a box, or twice the radius of a circle, in metres.
    size: Option<(f64, f64)>,
    is_box: bool,
    unit: f64,
    is_sorted: Option<bool>,
    count: Option<u64>,
    takes_any: bool,
    with_point: bool,
    with_distance: bool,
    with_score: bool,
    pub(super) stores_distance: bool,
}

/// A member that was found.
struct GeoMatch {
    member: Vec<u8>,
    score: f64,
    metres: f64,
}

impl<'a> Search<'a> {
    /// Parses the options behind the keys; errors show `name`, the command as it was given.
    fn parse(args: Args<'a>, name: &[u8], is_stored: bool) -> Result<Self, Failure> {
        let name = String::from_utf8_lossy(name);
        let mut search = Search { unit: 1.0, ..Search::default() };
        let mut at = 0;
        while let Some(word) = args.get(at) {
            let left = args.len() - at - 1;
            // As in Redis, one form of the centre and of the area may be repeated.
            if is(word, "frommember") && left >= 1 && search.from_point.is_none() {
                search.from_member = args.get(at + 1);
                at += 1;
            } else if is(word, "fromlonlat") && left >= 2 && search.from_member.is_none() {
                search.from_point = Some(point(&args[at + 1], &args[at + 2])?);
                at += 2;
            } else if is(word, "byradius") && left >= 2 && !search.is_box {
                search.set_radius(&args[at + 1], &args[at + 2])?;
                at += 2;
            } else if is(word, "bybox") && left >= 3 && (search.is_box || search.size.is_none()) {
                let width = float(&args[at + 1]).ok_or(reply_error("ERR need numeric width"))?;
                let height = float(&args[at + 2]).ok_or(reply_error("ERR need numeric height"))?;
                if width < 0.0 || height < 0.0 {
                    return Err(reply_error("ERR height or width cannot be negative"));
                }
                search.unit = unit(&args[at + 3])?;
                search.size = Some((width * search.unit, height * search.unit));
                search.is_box = true;
                at += 3;
            } else if is(word, "storedist") && is_stored {
                search.stores_distance = true;
            } else {
                at += search.parse_option(args.from(at))? - 1;
            }
            at += 1;
        }
        if is_stored && search.has_extras() {
            return Err(reply_error(
                "ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORD options",
            ));
        }
        if search.has_no_centre() {
            let text = "ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for";
            return Err(format!("{text} {name}").into());
        }
        if search.size.is_none() {
            let text = "ERR exactly one of BYRADIUS and BYBOX can be specified for";
            return Err(format!("{text} {name}").into());
        }
        search.finish()?;
        Ok(search)
    }

    /// A search around a point, whose radius is set afterwards.
    pub(super) fn around_point(point: Point) -> Self {
        Search { from_point: Some(point), unit: 1.0, ..Search::default() }
    }

    /// A search around a member, whose radius is set afterwards.
    pub(super) fn around_member(member: &'a [u8]) -> Self {
        Search { from_member: Some(member), unit: 1.0, ..Search::default() }
    }

    /// Sets the radius of a circle, in a unit.
    pub(super) fn set_radius(&mut self, radius: &[u8], name: &[u8]) -> Outcome {
        let radius = float(radius).ok_or(reply_error("ERR need numeric radius"))?;
        if radius < 0.0 {
            return Err(reply_error("ERR radius cannot be negative"));
        }
        self.unit = unit(name)?;
        self.size = Some((2.0 * radius * self.unit, 2.0 * radius * self.unit));
        Ok(())
    }

    /// Parses one option of order, number and content at the beginning of the arguments. Returns
    /// the number of its words.
    pub(super) fn parse_option(&mut self, args: Args<'_>) -> Result<usize, Failure> {
        match args.get(0).unwrap_or_default() {
            word if is(word, "asc") => self.is_sorted = Some(true),
            word if is(word, "desc") => self.is_sorted = Some(false),
            word if is(word, "any") => self.takes_any = true,
            word if is(word, "withcoord") => self.with_point = true,
            word if is(word, "withdist") => self.with_distance = true,
            word if is(word, "withhash") => self.with_score = true,
            word if is(word, "count") && args.len() > 1 => {
                integer(&args[1])?;
                self.count = Some(count_from_one(&args[1], "ERR COUNT must be > 0")?);
                return Ok(2);
            }
            _ => return Err(SYNTAX),
        }
        Ok(1)
    }

    /// Checks that the options fit together.
    pub(super) fn finish(&mut self) -> Outcome {
        if self.takes_any && self.count.is_none() {
            return Err(reply_error("ERR the ANY argument requires COUNT argument"));
        }
        // The nearest are returned, unless any are asked for.
        if self.count.is_some() && self.is_sorted.is_none() && !self.takes_any {
            self.is_sorted = Some(true);
        }
        Ok(())
    }

    /// Whether more than the members is asked for.
    pub(super) fn has_extras(&self) -> bool {
        self.with_distance || self.with_score || self.with_point
    }

    fn has_no_centre(&self) -> bool {
        self.from_member.is_none() && self.from_point.is_none()
    }

    /// The members that are found; without a COUNT up to `limit` bytes of them.
    fn run(
        &self,
        writes: &mut WriteSet<'_>,
        key: &[u8],
        limit: usize,
    ) -> Result<Vec<GeoMatch>, Failure> {
        let set = SortedSet::open(writes, key)?;
        if set.is_empty() {
            return Ok(Vec::new());
        }
        let centre = match (self.from_member, self.from_point) {
            (Some(member), _) => {
                let missing = reply_error("ERR could not decode requested zset member");
                Point::of_score(set.score(member)?.ok_or(missing)?)
            }
            (None, Some(point)) => point,
            (None, None) => return Ok(Vec::new()),
        };
        let (width, height) = self.size.unwrap_or_default();
        let area = match self.is_box {
            true => Area::Box { centre, width, height },
            false => Area::Circle { centre, radius: width / 2.0 },
        };
        let max = self.count.unwrap_or(u64::MAX);
        let (mut found, mut bytes) = (Vec::new(), 0);
        for scores in geo_cells::covering(&area) {
            let mut goes_on = true;
            set.for_each(scores, siltstone_collections::Order::Ascending, &mut |member, score| {
                if let Some(metres) = area.distance_inside(Point::of_score(score)) {
                    found.push(GeoMatch { member: member.to_vec(), score, metres });
                    bytes += member.len();
                }
                goes_on = match self.count {
                    None => bytes <= limit,
                    Some(_) => !self.takes_any || (found.len() as u64) < max,
                };
                goes_on
            })?;
            if !goes_on {
                break;
            }
        }
        if let Some(is_ascending) = self.is_sorted {
            found.sort_by(|a, b| a.metres.total_cmp(&b.metres));
            if !is_ascending {
                found.reverse();
            }
        }
        found.truncate(usize::try_from(max).unwrap_or(usize::MAX));
        Ok(found)
    }
}

fn geosearch(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    Search::parse(args.from(2), &args[0], false)?.reply_from(context, &args[1])
}

fn geosearchstore(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    Search::parse(args.from(3), &args[0], true)?.store(context, &args[2], &args[1])
}

impl Search<'_> {
    /// Searches a sorted set, and replies with what was found.
    pub(super) fn reply_from(&self, context: &mut Context<'_>, key: &[u8]) -> Outcome {
        let limit = context.shared.options.max_output_bytes;
        let found = context.view(key, |writes| self.run(writes, key, limit))?;
        let extras = [self.with_distance, self.with_score, self.with_point];
        let extras = extras.into_iter().filter(|is_wanted| *is_wanted).count();
        context.replies.array(found.len());
        for GeoMatch { member, score, metres } in found {
            if extras > 0 {
                context.replies.array(1 + extras);
            }
            context.replies.bulk(&member);
            if self.with_distance {
                reply_distance(context, metres, self.unit);
            }
            if self.with_score {
                context.replies.int(score as i64);
            }
            if self.with_point {
                reply_point(context, Point::of_score(score));
            }
        }
        Ok(())
    }

    /// Searches a sorted set, and stores what was found at another key.
    pub(super) fn store(&self, context: &mut Context<'_>, source: &[u8], target: &[u8]) -> Outcome {
        // What is larger is not written anyway.
        let limit = context.shared.options.max_request_bytes;
        let stored = context.change_many([target, source].into_iter(), |writes| {
            let found = self.run(writes, source, limit)?;
            // Any type is overwritten.
            writes.remove(target)?;
            let mut set = SortedSet::open(writes, target)?;
            for GeoMatch { member, score, metres } in &found {
                let stored = if self.stores_distance { metres / self.unit } else { *score };
                set.insert(member, stored)?;
            }
            Ok(found.len())
        })?;
        context.replies.count(stored);
        Ok(())
    }
}
