package conformance

import "slices"

// Shrink looks for a shorter script of which fails is true as it is of script: it leaves out
// requests, and then what the requests that remain can do without. It asks about one script after
// the other; the result is one of those that failed, or script itself.
func Shrink(script Script, fails func(Script) bool) Script {
	s := shrinker{best: script, fails: fails}
	for again := true; again; {
		again = s.dropRequests()
		for i := range s.best.Requests {
			again = s.simplify(i) || again
		}
	}
	return s.best
}

type shrinker struct {
	best  Script
	fails func(Script) bool
}

// try takes over a script if it fails.
func (s *shrinker) try(requests []Request) bool {
	candidate := Script{Kind: s.best.Kind, Requests: requests}
	if !s.fails(candidate) {
		return false
	}
	s.best = candidate
	return true
}

// dropRequests leaves out runs of requests, long ones first, from the end.
func (s *shrinker) dropRequests() (any bool) {
	for size := len(s.best.Requests) / 2; size > 0; size /= 2 {
		for at := len(s.best.Requests) - size; at >= 0; at-- {
			if at+size > len(s.best.Requests) {
				continue
			}
			if s.try(slices.Delete(slices.Clone(s.best.Requests), at, at+size)) {
				any = true
			}
		}
	}
	return any
}

// simplify leaves out parts of one request.
func (s *shrinker) simplify(i int) (any bool) {
	with := func(change func(*Request)) bool {
		requests := slices.Clone(s.best.Requests)
		change(&requests[i])
		ok := s.try(requests)
		any = any || ok
		return ok
	}
	if s.best.Requests[i].Query != "" {
		with(func(r *Request) { r.Query = "" })
	}
	for at := len(s.best.Requests[i].Edits) - 1; at >= 0; at-- {
		with(func(r *Request) { r.Edits = slices.Delete(slices.Clone(r.Edits), at, at+1) })
	}
	if r := s.best.Requests[i]; r.Base == BaseStale {
		with(func(r *Request) { r.Base = BaseSeen })
	}
	return any
}
