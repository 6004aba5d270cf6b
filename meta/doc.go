// Package meta is the vocabulary of holds: what a caller says ([Call], [Ref]),
// what is written on an object ([Keys], [Hold]), and what a caller is told when
// a call does not succeed ([Error] and the sentinels it unwraps to).
//
// It sends nothing and reads no clock. The rules cited in the documentation
// (C1, H10, E3, ...) are those of holdable/RULES.md.
//
// # Annotations
//
// A hold is six annotations, written and removed together with the pause field
// of the object in a single update. Under the default prefix they are:
//
//	kubehold.dev/hold-instance   which hold: a whole number, 1 or more
//	kubehold.dev/hold-holder     who placed it
//	kubehold.dev/hold-reason     why
//	kubehold.dev/hold-since      when it was placed, RFC 3339 in UTC
//	kubehold.dev/hold-found      what the hold found: running, gate or paused
//	kubehold.dev/hold-uid        the UID of the object it was placed on
//
// Three more are not part of a hold and outlive it. The first is for kinds with
// a start gate; the last two lie on the named object, where the executions are
// counted by a start gate or by Kueue mode's readmission gate:
//
//	kubehold.dev/opened          the UID of the object that was opened
//	kubehold.dev/executions      how many executions it was given, and its UID
//	kubehold.dev/admission       the admission that the readmission gate counted last
//
// All of them are bound to the UID of the object they were written on, so that
// a copy, or an object restored from a backup, carries none (rule H13).
package meta
