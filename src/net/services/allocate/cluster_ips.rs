//! Assigns cluster IPs to services.

use std::net::IpAddr;

use super::candidate::{Candidate, Owners, has_it};
use super::ranges::{IpRange, hash};
use crate::api::field::{FieldError, item};
use crate::api::service::{Cidr, ClusterIps, IpFamily, IpFamilyPolicy, Service, ServiceType};

/// A cluster IP of one family that a service is to get.
struct Slot {
    who: usize,
    family: IpFamily,
    given: Option<IpAddr>,
    got: Option<IpAddr>,
}

struct Work<'w, 's> {
    all: &'w mut [Candidate<'s>],
    cidrs: &'w [Cidr],
    owners: Owners<IpAddr>,
}

/// Assigns the cluster IPs of all services. First, services keep the addresses that they have. Then come the addresses that
/// files give. Last, the remaining services get new addresses.
pub(super) fn assign(all: &mut [Candidate<'_>], cidrs: &[Cidr]) {
    let mut slots = slots(all, cidrs);
    let mut work = Work {
        all,
        cidrs,
        owners: Owners::new(),
    };
    for slot in &mut slots {
        slot.got = work.kept(slot, slot.given);
    }
    for slot in slots.iter_mut().filter(|slot| slot.got.is_none()) {
        slot.got = slot.given.and_then(|ip| work.given(slot.who, ip));
    }
    for slot in slots.iter_mut().filter(|slot| slot.got.is_none()) {
        slot.got = match slot.given {
            None => work.new_one(slot),
            // The service cannot have the given address, and has a problem that says so. The service keeps the address
            // that it had.
            Some(_) => work.kept(slot, None),
        };
    }
    for slot in slots {
        all[slot.who].cluster_ips.extend(slot.got);
    }
}

fn slots(all: &mut [Candidate<'_>], cidrs: &[Cidr]) -> Vec<Slot> {
    let mut slots = Vec::new();
    for (who, candidate) in all.iter_mut().enumerate() {
        let service = candidate.service;
        if service.is_headless() || service.type_ == ServiceType::ExternalName {
            continue;
        }
        match families(service, cidrs) {
            Ok(families) => slots.extend(families.iter().enumerate().map(|(place, family)| Slot {
                who,
                family: *family,
                given: given_ips(service).get(place).copied(),
                got: None,
            })),
            Err(problems) => {
                candidate.is_refused = true;
                candidate.problems = problems;
            }
        }
    }
    slots
}

impl Work<'_, '_> {
    fn range(&self, family: IpFamily) -> Option<IpRange> {
        let mut cidrs = self.cidrs.iter();
        let cidr = cidrs.find(|cidr| IpFamily::of(cidr.network) == family)?;
        Some(IpRange::new(*cidr))
    }

    /// Keeps the service's earlier address of this family, if it is still allowed and `given` is the same address or
    /// `None`.
    fn kept(&mut self, slot: &Slot, given: Option<IpAddr>) -> Option<IpAddr> {
        let range = self.range(slot.family)?;
        let mut held = self.all[slot.who].held.cluster_ips.iter().copied();
        let ip = held.find(|ip| match given {
            Some(given) => *ip == given && range.contains(*ip),
            None => range.may_be_allocated(*ip),
        })?;
        self.owners.claim(ip, slot.who).ok()
    }

    fn given(&mut self, who: usize, ip: IpAddr) -> Option<IpAddr> {
        let range = self.range(IpFamily::of(ip))?;
        let why = match range.contains(ip) {
            true => match self.owners.claim(ip, who) {
                Ok(ip) => return Some(ip),
                Err(owner) => {
                    let has_it = has_it(&self.all[owner]);
                    format!("provided IP is already allocated: {has_it}")
                }
            },
            false => format!(
                "the provided IP ({ip}) is not in the valid range. The range of valid IPs is {range} without its ends; write another one, or leave it out and one is allocated"
            ),
        };
        let candidate = &mut self.all[who];
        let ips = given_ips(candidate.service).iter();
        let texts: Vec<String> = ips.map(IpAddr::to_string).collect();
        let detail = format!("failed to allocate IP {ip}: {why}");
        let problem = FieldError::invalid("spec.clusterIPs", texts, detail);
        candidate.problems.push(problem);
        None
    }

    fn new_one(&mut self, slot: &Slot) -> Option<IpAddr> {
        let range = self.range(slot.family)?;
        let hash = hash(&self.all[slot.who].name);
        let free = range.candidates(hash).find(|ip| !self.owners.has(ip));
        if let Some(ip) = free {
            return self.owners.claim(ip, slot.who).ok();
        }
        let detail = format!(
            "failed to allocate a serviceIP: range is full: all of {range} is taken; give serviceCIDR a larger range, or remove services"
        );
        let problem = FieldError::required("spec.clusterIP", detail);
        self.all[slot.who].problems.push(problem);
        None
    }
}

fn given_ips(service: &Service) -> &[IpAddr] {
    match &service.cluster_ips {
        ClusterIps::Given(ips) => ips,
        ClusterIps::Allocated | ClusterIps::Headless => &[],
    }
}

/// Returns the families of the service's addresses, primary first, by the rules of the API server.
fn families(service: &Service, cidrs: &[Cidr]) -> Result<Vec<IpFamily>, Vec<FieldError>> {
    let mut problems = Vec::new();
    let configured: Vec<_> = cidrs.iter().map(|c| IpFamily::of(c.network)).collect();
    let named = service.ip_families.iter().copied();
    let of_given = given_ips(service).iter().map(|ip| IpFamily::of(*ip));
    let mut wanted: Vec<_> = named
        .chain(of_given.skip(service.ip_families.len()))
        .collect();
    if service.ip_family_policy == IpFamilyPolicy::RequireDualStack && configured.len() < 2 {
        let detail = "this cluster is not configured for dual-stack services: give serviceCIDR a range of the other family, too, or write SingleStack";
        let path = "spec.ipFamilyPolicy";
        problems.push(FieldError::invalid(path, "RequireDualStack", detail));
    }
    let missing = wanted.iter().enumerate();
    for (index, family) in missing.filter(|(_, family)| !configured.contains(family)) {
        problems.push(not_configured(service, index, *family));
    }
    if configured.is_empty() && wanted.is_empty() {
        let detail = "failed to allocate a serviceIP: there is no serviceCIDR";
        problems.push(FieldError::required("spec.clusterIP", detail));
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    if wanted.is_empty() {
        wanted.extend(configured.first());
    }
    if service.ip_family_policy != IpFamilyPolicy::SingleStack && wanted.len() == 1 {
        let other = configured.iter().find(|family| **family != wanted[0]);
        wanted.extend(other);
    }
    Ok(wanted)
}

fn not_configured(service: &Service, index: usize, family: IpFamily) -> FieldError {
    let detail = format!("not configured on this cluster: serviceCIDR has no {family} range");
    match service.ip_families.get(index) {
        Some(_) => FieldError::invalid(item("spec.ipFamilies", index), family.to_string(), detail),
        None => {
            let ip = given_ips(service)[index].to_string();
            FieldError::invalid(item("spec.clusterIPs", index), ip, detail)
        }
    }
}
