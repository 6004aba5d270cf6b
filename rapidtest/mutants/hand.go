package main

// A handMade is a mistake that somebody might make, written as a replacement of source text.
type handMade struct {
	// Rule is the id of the rule in holdable/RULES.md that the mistake breaks.
	Rule string
	// Name says what goes wrong.
	Name string
	// File is relative to the root of the module. Old occurs in it exactly once, inside one function, and becomes New.
	File, Old, New string
}

// handMades returns the table of mistakes made by hand, in the order of the rules.
//
// The mistakes that a machine can make as well, a condition turned round or a return left out, are not here: see operators. To add one, copy
// the source text as it stands, as much of it as makes it unique.
func handMades() []handMade {
	return []handMade{
		// C: every call
		{"C1", "a reason may be of any length", "meta/call.go",
			`return checkText("reason", c.Reason, MaxReasonBytes)`,
			`return checkText("reason", c.Reason, 1<<30)`},
		{"C1", "instance 0 may hold", "meta/call.go",
			`case c.Instance < 1 && op != OpOpen:`,
			`case c.Instance < 0 && op != OpOpen:`},
		{"C2", "a deadline that has passed leaves another second", "retry/call.go",
			`until := time.Now().Add(time.Until(deadline))`,
			`until := time.Now().Add(max(time.Until(deadline), time.Second))`},
		{"C3", "the deadline stays on the wall clock", "retry/call.go",
			`until := time.Now().Add(time.Until(deadline))`,
			`until := deadline.Round(0)`},
		{"C3", "the deadline is checked once", "retry/call.go",
			`err := expired(c.ctx)`,
			`if c.tries > 0 {
				return nil
			}
			err := expired(c.ctx)`},
		{"C3", "a request may outlast the deadline", "retry/request.go",
			`ctx, t := withTransmission(ctx)`,
			`ctx, t := withTransmission(context.WithoutCancel(ctx))`},
		{"C3", "a request that waited for a rate limiter leaves late", "retry/transport.go",
			`if err := expired(ctx); err != nil {
		return err
	}
	if !t.count`,
			`if !t.count`},
		{"C4", "a fate is over with the deadline", "retry/call.go",
			`c.until.Add(c.engine.bound)`,
			`c.until`},
		{"C5", "what a probe found is forgotten", "holdable/client.go",
			`copied.can = found`,
			`copied.can = nil`},
		{"C6", "the UID of the first read is not kept", "holdable/find.go",
			`f.ref.UID = uid`,
			`if f.kind.Of != nil {
				f.ref.UID = uid
			}`},
		{"C6", "an object of another UID will do", "holdable/find.go",
			`case f.ref.UID != "" && f.ref.UID != uid:`,
			`case f.ref.UID != "" && uid == "":`},
		{"C7", "client-go sends again by itself", "retry/transport.go",
			`resp.Header.Del("Retry-After")`,
			``},
		{"C7", "a request is transmitted as often as somebody likes", "retry/transport.go",
			`if !t.count.CompareAndSwap(0, 1) {
		return errSecond
	}`,
			`t.count.Add(1)`},
		{"C7", "a 409 is believed where nobody has counted", "retry/call.go",
			`c.refused = true
		c.doubt(sent != 1)`,
			`c.refused = true`},
		{"C8", "another field manager", "retry/request.go",
			`FieldManager: FieldManager, FieldValidation`,
			`FieldManager: "kubectl", FieldValidation`},
		{"C8", "unknown fields are let through", "retry/request.go",
			`FieldManager: FieldManager, FieldValidation: metav1.FieldValidationStrict}`,
			`FieldManager: FieldManager}`},

		// H: Hold
		{"H1", "the annotations come in a second update", "holdable/client.go",
			`return c.do(ctx, meta.OpHold, ref, call, c.kind.hold)`,
			`pause := func(v view[T], r request) (verdict, error) {
				d, err := c.kind.hold(v, r)
				d.edits = d.edits[:min(len(d.edits), 1)]
				return d, err
			}
			if receipt, err := c.do(ctx, meta.OpHold, ref, call, pause); err != nil {
				return receipt, err
			}
			return c.do(ctx, meta.OpHold, ref, call, c.kind.hold)`},
		{"H1", "a hold without its last annotation", "holdable/decide.go",
			`for _, key := range r.keys.OfHold() {
		edits = append(`,
			`for _, key := range r.keys.OfHold()[:5] {
		edits = append(`},
		{"H1", "a hold without the pause", "holdable/decide.go",
			`edits := []retry.Edit{retry.Set(h.Pause.Held, h.Pause.Path...)}`,
			`var edits []retry.Edit`},
		{"H1", "fields that nobody here knows are dropped", "retry/edit.go",
			`return &unstructured.Unstructured{Object: root}, nil`,
			`if spec, ok := root["spec"].(map[string]any); ok {
				known := map[string]any{}
				for _, field := range []string{"suspend", "active", "mark", "size"} {
					if v, ok := spec[field]; ok {
						known[field] = v
					}
				}
				root["spec"] = known
			}
			return &unstructured.Unstructured{Object: root}, nil`},
		{"H2", "the hold in force is written again", "holdable/decide.go",
			`if v.instance() == r.Instance && v.paused {`,
			`if v.instance() == r.Instance && v.paused && v.hold.Reason == r.Reason {`},
		{"H3", "a hold that was undone counts as in force", "holdable/decide.go",
			`if v.instance() == r.Instance && v.paused {`,
			`if v.instance() == r.Instance {`},
		{"H3", "a hold that is made again forgets since when", "holdable/decide.go",
			`hold.Since = v.hold.Since`,
			`hold.Since = r.now`},
		{"H4", "a newer hold that was undone is overwritten", "holdable/decide.go",
			`case in > r.Instance:`,
			`case in > r.Instance && v.paused:`},
		{"H5", "an older hold is not overtaken", "holdable/decide.go",
			`case in > r.Instance:`,
			`case in != 0 && in != r.Instance:`},
		{"H6", "a hold that vanished during the call is no change", "holdable/decide.go",
			`case in != r.Instance && r.last.changed(v.uid, in):`,
			`case in != 0 && in != r.Instance && r.last.changed(v.uid, in):`},
		{"H6", "only a newer instance is a change", "holdable/decide.go",
			`case in != r.Instance && r.last.changed(v.uid, in):`,
			`case in > r.Instance && r.last.changed(v.uid, in):`},
		{"H6", "another object is compared with the one before", "holdable/decide.go",
			`return s != nil && s.uid == uid && s.instance != instance`,
			`return s != nil && s.instance != instance`},
		{"H7", "the named object is written in Kueue mode", "kinds/kueue.go",
			`held.Of = &holdable.Named{
		Kind:     kind.Kind,
		Resource: kind.Resource,
		UIDLabel: "kueue.x-k8s.io/job-uid",
		Stop:     kind.Pause.Stop(),
	}`,
			`held.Kind, held.Resource, held.Pause = kind.Kind, kind.Resource, suspend()`},
		{"H7", "a Workload with the label is taken, whoever controls it", "holdable/find.go",
			`return owner == "" || owner == f.ref.UID`,
			`return true`},
		{"H7", "a Workload is looked for by its label only", "holdable/find.go",
			`if err != nil || len(held) > 0 {
		return held, err
	}`,
			`if err != nil || len(held) >= 0 {
		return held, err
	}`},
		{"H7", "a Workload that is called like the job is taken", "holdable/find.go",
			`held, err := f.candidates(ctx, r)`,
			`if obj, err := r.Get(ctx, f.kind.Resource, f.ref.Namespace, f.ref.Name); err == nil {
				return obj, nil
			}
			held, err := f.candidates(ctx, r)`},
		{"H8", "a Release resumes what Kueue owns", "holdable/decide.go",
			`case v.owner != "":
		return "its pause field is left`,
			`case false:
		return "its pause field is left`},
		{"H8", "a TrainJob is held beside Kueue", "kinds/trainer.go",
			`Owners:   []holdable.Owner{byKueue()},`,
			``},
		{"H9", "a deactivation by Kueue is found running", "holdable/decide.go",
			`case v.paused || v.deactivated != "":`,
			`case v.paused:`},
		{"H9", "the record is kept though the object was resumed", "holdable/decide.go",
			`case v.hold != nil && v.paused:
		return v.hold.Found`,
			`case v.hold != nil:
		return v.hold.Found`},
		{"H9", "the record of the hold before is lost", "holdable/decide.go",
			`case v.hold != nil && v.paused:
		return v.hold.Found`,
			`case v.hold != nil && v.paused && v.hold.Found != meta.FoundGate:
		return v.hold.Found`},
		{"H10", "a hold that cannot be read is none", "meta/annotations.go",
			`if h.Instance, err = k.readInstance(annotations); err != nil {
		return nil, err`,
			`if h.Instance, err = k.readInstance(annotations); err != nil {
		return nil, nil`},
		{"H10", "an instance may be written in more ways than one", "meta/annotations.go",
			`return n, err == nil && n >= 0 && strconv.FormatInt(n, 10) == s`,
			`return n, err == nil && n >= 0`},
		{"H11", "a Release resumes what is being deleted", "holdable/decide.go",
			`case v.beingDeleted:
		return "it is being deleted"`,
			`case false:
		return "it is being deleted"`},
		{"H11", "the hold in force may be asserted on what is being deleted", "holdable/decide.go",
			`case v.beingDeleted:
		return meta.Errorf(meta.ErrRejected, "the object is being deleted: what`,
			`case v.beingDeleted && in != r.Instance:
		return meta.Errorf(meta.ErrRejected, "the object is being deleted: what`},
		{"H12", "a Hold waits for the pods to end", "holdable/client.go",
			`if !made.resumes || c.kind.Pods == nil`,
			`if !made.resumes && made.did != Placed || c.kind.Pods == nil`},
		{"H13", "the hold of a copied object counts", "meta/annotations.go",
			`return ok && bound != string(uid)`,
			`return ok && bound == "" && uid != ""`},
		{"H13", "the opened mark of a copied object counts", "meta/annotations.go",
			`return ok && uid != "" && mark == string(uid)`,
			`return ok && uid != "" && mark != ""`},
		{"H13", "the executions of a copied object count", "meta/annotations.go",
			`if bound != string(uid) {
		return 0, nil
	}`,
			``},

		// R: Release
		{"R1", "a newer Release lifts an older hold", "holdable/decide.go",
			`case in != r.Instance:`,
			`case in == 0 || in > r.Instance:`},
		{"R1", "a Release lifts whatever hold is in force", "holdable/decide.go",
			`case in != r.Instance:`,
			`case in == 0:`},
		{"R2", "a Release leaves an annotation", "holdable/decide.go",
			`for _, key := range r.keys.OfHold() {
		out.edits = append(`,
			`for _, key := range r.keys.OfHold()[1:] {
		out.edits = append(`},
		{"R2", "a Release leaves the pause", "holdable/decide.go",
			`out.edits = append(out.edits, edit)`,
			`_ = edit`},
		{"R3", "what somebody else had paused is resumed", "holdable/decide.go",
			`case v.hold.Found == meta.FoundPaused:`,
			`case v.hold.Found == meta.FoundPaused && v.deactivated != "":`},
		{"R4", "the pods come out of a cache", "retry/request.go",
			`metav1.ListOptions{LabelSelector: selector, Limit: pageSize}`,
			`metav1.ListOptions{LabelSelector: selector, Limit: pageSize, ResourceVersion: "0"}`},
		{"R4", "only the first page of the pods is looked at", "retry/request.go",
			`if opts.Continue = list.GetContinue(); opts.Continue == "" {`,
			`if opts.Continue = list.GetContinue(); true {`},
		{"R4", "the pods are not listed again after a conflict", "holdable/client.go",
			`made, err = decide(v, req)
			return retry.Decision{Edits: made.edits, Check: c.podsGone(made, find)}, err`,
			`again := made.resumes
			made, err = decide(v, req)
			check := c.podsGone(made, find)
			if again {
				check = nil
			}
			return retry.Decision{Edits: made.edits, Check: check}, err`},
		{"R4", "the pods are looked at after the update, which has raised A by then", "retry/call.go",
			`if err := c.check(d); err != nil {
		return nil, err
	}
	c.write, c.moved = &write{base: read, want: want, edits: d.Edits}, false
	return c.send()`,
			`c.write, c.moved = &write{base: read, want: want, edits: d.Edits}, false
	obj, err := c.send()
	if err != nil {
		return nil, err
	}
	return obj, c.check(d)`},
		{"R4", "A is raised by a Release that resumes nothing", "holdable/decide.go",
			`out.did, out.why = KeptPaused, why
		return out, nil`,
			`out.did, out.why = KeptPaused, why
		out.executions++
		out.edits = append(out.edits, retry.Set(r.keys.ExecutionsValue(v.uid, out.executions), Annotation(r.keys.Executions())...))
		return out, nil`},
		{"R4", "A is raised where the object runs already", "holdable/decide.go",
			`out.why = "it was running already"
		return out, nil`,
			`out.why = "it was running already"
		out.executions++
		out.edits = append(out.edits, retry.Set(r.keys.ExecutionsValue(v.uid, out.executions), Annotation(r.keys.Executions())...))
		return out, nil`},
		{"R5", "a terminal phase is believed", "holdable/pods.go",
			`return !terminated(pod, "containers", "containerStatuses") ||
		!terminated(pod, "initContainers", "initContainerStatuses") ||
		!terminated(pod, "ephemeralContainers", "ephemeralContainerStatuses")`,
			`return false`},
		{"R5", "init containers are not looked at", "holdable/pods.go",
			`!terminated(pod, "initContainers", "initContainerStatuses") ||`,
			``},
		{"R5", "ephemeral containers are not looked at", "holdable/pods.go",
			`!terminated(pod, "ephemeralContainers", "ephemeralContainerStatuses")`,
			`false`},
		{"R5", "a pod that is being deleted is taken for gone", "holdable/pods.go",
			`if text(pod, "spec", "nodeName") == "" {`,
			`if text(pod, "spec", "nodeName") == "" || pod.GetDeletionTimestamp() != nil {`},
		{"R5", "the later of two statuses is believed", "holdable/pods.go",
			`done[name] = state["terminated"] != nil && (before || !twice)`,
			`_, _ = before, twice
		done[name] = state["terminated"] != nil`},
		{"R6", "a Release runs what was held at its start gate", "holdable/decide.go",
			`case !v.opened && (h.StartGate || v.hold.Found == meta.FoundGate):`,
			`case !v.opened && v.hold.Found != meta.FoundGate && h.StartGate:`},
		{"R6", "a client without the start gate runs what was held at it", "holdable/decide.go",
			`case !v.opened && (h.StartGate || v.hold.Found == meta.FoundGate):`,
			`case !v.opened && h.StartGate:`},
		{"R7", "a Release resumes what has ended", "holdable/decide.go",
			`case v.ended != "":
		return "it has ended: " + v.ended`,
			`case false:
		return "it has ended: " + v.ended`},
		{"R8", "after a conflict a Release lifts what it finds", "holdable/decide.go",
			`case in != r.Instance:`,
			`case in != r.Instance && (in == 0 || r.last == nil):`},
		{"R8", "a read that shows what the call would have written is its success", "retry/call.go",
			`landed = c.open && there`,
			`landed = there`},

		// O: Open
		{"O1", "an Open does not raise A", "holdable/decide.go",
			`if !h.StartGate {
		return out, nil
	}`,
			`if !h.StartGate || v.hold == nil {
		return out, nil
	}`},
		{"O1", "A rises by two", "holdable/decide.go",
			`out.executions++
	a :=`,
			`out.executions += 2
	a :=`},
		{"O2", "an Open resumes under a hold", "holdable/decide.go",
			`case v.hold != nil:
		out.why`,
			`case v.hold != nil && v.hold.Found != meta.FoundGate:
		out.why`},
		{"O3", "an object that is open already is opened again", "holdable/decide.go",
			`case v.opened:
		return verdict{did: AlreadyOpen`,
			`case v.opened && v.hold == nil:
		return verdict{did: AlreadyOpen`},
		{"O4", "an Open without a start gate", "holdable/client.go",
			`if op == meta.OpOpen && !c.kind.StartGate {`,
			`if op == meta.OpOpen && c.kind.Of != nil {`},

		// T: tries
		{"T1", "no precondition", "retry/request.go",
			`answer, err = r.client(r.op.Resource, ev.Namespace).Update(ctx, w.want, opts, part...)`,
			`want := w.want.DeepCopy()
		want.SetResourceVersion("")
		answer, err = r.client(r.op.Resource, ev.Namespace).Update(ctx, want, opts, part...)`},
		{"T1", "the precondition is taken from another read", "retry/call.go",
			`c.write, c.moved = &write{base: read, want: want, edits: d.Edits}, false`,
			`if again, err := c.op.Read(c.ctx, reader{c}); err == nil {
		want = want.DeepCopy()
		want.SetResourceVersion(again.GetResourceVersion())
	}
	c.write, c.moved = &write{base: read, want: want, edits: d.Edits}, false`},
		{"T1", "after a conflict the same update is sent again under the new resourceVersion", "retry/call.go",
			`if c.open && !c.refused {
		return c.send()
	}`,
			`if c.open && !c.refused {
		return c.send()
	}
	if c.refused {
		if now, err := c.readWritten(); err == nil && now != nil {
			want := c.write.want.DeepCopy()
			want.SetResourceVersion(now.GetResourceVersion())
			c.write = &write{base: now, want: want, edits: c.write.edits}
			return c.send()
		}
	}`},
		{"T2", "one try more", "retry/retry.go",
			`cmp.Or(opts.Retries, MaxRetries)`,
			`cmp.Or(opts.Retries, MaxRetries+1)`},
		{"T2", "a call that lost every try is merely rejected", "retry/call.go",
			`kind := lo.Ternary(apierrors.IsConflict(err), meta.ErrConflict, meta.ErrRejected)`,
			`kind := lo.Ternary(apierrors.IsConflict(err), meta.ErrRejected, meta.ErrRejected)`},
		{"T3", "an open fate is reported as none", "retry/call.go",
			`c.doubt(true)
	return nil, passing{err}`,
			`return nil, passing{err}`},
		{"T3", "a read that shows no change ends the doubt", "retry/call.go",
			`if c.open && !c.refused {
		return c.send()
	}`,
			`c.open = c.open && c.refused`},
		{"T3", "the 404 of something else ends the doubt", "retry/call.go",
			`return d != nil && d.Name == c.write.base.GetName() &&
		d.Kind == c.op.Resource.Resource && d.Group == c.op.Resource.Group`,
			`return d != nil`},
		{"T3", "a refusal of the second transmission ends the doubt of the first", "retry/call.go",
			`if c.isGone(err) {
			c.open = false
		}`,
			`c.open = false`},
		{"T4", "whatever is answered 403 is unsupported", "retry/request.go",
			`return found && !allowed`,
			`return found && !allowed || answer != nil`},
		{"T4", "a 422 is tried again", "retry/call.go",
			`case code >= 400 && code < 500:`,
			`case code >= 400 && code < 422:`},
		{"T4", "the API error is not in the chain", "retry/call.go",
			`return meta.Errorf(kind, "").Because(err)`,
			`return meta.Errorf(kind, "%v", err)`},
		{"T5", "Retry-After is not honoured", "retry/call.go",
			`d := max(c.backoff.Step(), retryAfter(last))`,
			`d := c.backoff.Step()`},
		{"T5", "waits do not vary", "retry/retry.go",
			`Jitter: 0.5`,
			`Jitter: 0`},
		{"T5", "waits do not grow", "retry/call.go",
			`d := max(c.backoff.Step(), retryAfter(last))`,
			`pace := c.engine.backoff
	d := max(pace.Step(), retryAfter(last))`},
		{"T6", "a read that fails in passing ends the call", "retry/request.go",
			`return passing{err}`,
			`return err`},
		{"T7", "the answer is not looked at", "retry/call.go",
			`undone := Missing(answer, c.write.edits)`,
			`undone := Missing(answer, nil)`},
		{"T7", "an update that changed nothing is success", "retry/call.go",
			`if sameVersion(answer, c.write.base) {`,
			`if sameVersion(answer, c.write.base) && len(undone) > 0 {`},
		{"T8", "a webhook's 409 is taken for a conflict", "retry/call.go",
			`if now != nil && sameVersion(now, c.write.base) {`,
			`if now != nil && c.open && sameVersion(now, c.write.base) {`},

		// E: errors
		{"E1", "a deadline that passed is no rejection", "meta/errors.go",
			`case ErrStaleHold, ErrDeadline, ErrMissing, ErrReplaced:`,
			`case ErrStaleHold, ErrMissing, ErrReplaced:`},
		{"E1", "the context that ended is not in the chain", "retry/call.go",
			`return meta.Errorf(meta.ErrDeadline, "%s", detail).Because(err)`,
			`return meta.Errorf(meta.ErrDeadline, "%s: %v", detail, err)`},
		{"E1", "ErrPodsRemain without the pod", "holdable/client.go",
			`e.Pods = []string{pod}`,
			`e.Pods = nil`},
		{"E2", "the instance seen is not told", "holdable/decide.go",
			`e.Seen, e.Changed = v, changed`,
			`e.Changed = changed`},
		{"E2", "the tries are not told", "retry/call.go",
			`out.Tries = c.tries`,
			``},
		{"E2", "the precondition is not told", "retry/call.go",
			`out.UID, out.Precondition = base.GetUID(), base.GetResourceVersion()`,
			`out.UID = base.GetUID()`},
		{"E3", "a fate that is open is told as settled", "retry/call.go",
			`meta.ErrInDoubt, meta.FatePending, c.until`,
			`meta.ErrInDoubt, meta.FateSettled, c.until`},
		{"E3", "what may have landed is told as none", "retry/call.go",
			`c.open = false
	if len(undone) > 0 {
		c.doubted = true`,
			`c.open = false
	if len(undone) > 0 {
		c.doubted = false`},

		// K: telling holds apart
		{"K1", "the count of executions is read off the held object", "holdable/inspect.go",
			`in.Executions = c.executions(find.namedRead)`,
			`in.Executions = c.executions(read)`},
		{"K2", "a hold on what Kueue has deactivated is not seen", "holdable/inspect.go",
			`case v.hold != nil && v.paused:`,
			`case v.hold != nil && v.paused && v.deactivated == "":`},
		{"K2", "a deactivation from outside is taken for Kueue's", "kinds/kueue.go",
			`strings.CutPrefix(c.Reason, "DeactivatedDueTo")`,
			`strings.CutPrefix(c.Reason, "Deactivated")`},
		{"K3", "what is held counts as drained", "holdable/inspect.go",
			`in.Pod, in.Drained = pod, IsDrained
		if pod != "" {`,
			`in.Pod, in.Drained = pod, IsDrained
		if pod != "" && in.State != Held {`},

		// G: the readmission gate
		{"G1", "the gate does not look at the pods", "holdable/gate.go",
			`s.pod, err = remaining(ctx, r, c.kind.Pods, job)`,
			`_, err = remaining(ctx, r, c.kind.Pods, job)`},
		{"G1", "the gate does not look at what makes the pods", "holdable/gate.go",
			`if s.maker, err = running(ctx, r, c.kind.Makes, job); s.maker != "" || err != nil {`,
			`if _, err = running(ctx, r, c.kind.Makes, job); err != nil {`},
		{"G1", "the gate lists the pods before it looks at what makes them", "holdable/gate.go",
			`if s.maker, err = running(ctx, r, c.kind.Makes, job); s.maker != "" || err != nil {
		return s, err
	}
	s.pod, err = remaining(ctx, r, c.kind.Pods, job)
	return s, err`,
			`if s.pod, err = remaining(ctx, r, c.kind.Pods, job); s.pod != "" || err != nil {
				return s, err
			}
			s.maker, err = running(ctx, r, c.kind.Makes, job)
			return s, err`},
		{"G1", "the gate looks at the first of what makes the pods only", "holdable/made.go",
			`if name != "" {
			return m.Kind + " " + name, nil
		}`,
			`if name != "" {
				return m.Kind + " " + name, nil
			}
			break`},
		{"G1", "in Kueue mode nothing makes the pods", "kinds/kueue.go",
			`held.Pods, held.Makes = kind.Pods, kind.Makes`,
			`held.Pods = kind.Pods`},
		{"G1", "the gate keeps to itself what it is refused", "holdable/gate.go",
			`if refusal(err) == "" {`,
			`if refusal(err) == "" || ctx != nil {`},
		{"G1", "the gate says what it is refused in other words each time", "holdable/gate_judge.go",
			`code, http.StatusText(code))`,
			`code, err)`},
		{"E3", "the gate forgets a raise that the first of two requests may have made", "holdable/gate.go",
			`c.wrote = c.wrote || tried && err == nil`,
			`c.wrote = c.wrote || tried && err == nil && judge(seen).do == raise`},
		{"E3", "the gate forgets that a raise that was refused may have been made", "holdable/gate.go",
			`c.wrote = c.wrote || ok && own.Fate != meta.FateNone`,
			`_, _ = own, ok`},
		{"G1", "the gate answers while the Workload is being evicted", "holdable/gate_judge.go",
			`case isTrue(w.obj, "Evicted"):`,
			`case isTrue(w.obj, "Evicted") && s.pod != "":`},
		{"G1", "the gate answers before there is quota", "holdable/gate_judge.go",
			`case !isTrue(w.obj, "QuotaReserved"):`,
			`case w.obj == nil:`},
		{"G1", "the gate does not look whether the job has been stopped", "holdable/gate_judge.go",
			`namedRuns:    g.kind.Of.Stop.runs(job),`,
			``},
		{"G2", "the gate lets an object pass on which a hold was undone", "holdable/gate_judge.go",
			`case s.workload.hold != nil:
		return holdText`,
			`case s.workload.hold != nil && s.workload.paused:
		return holdText`},
		{"G2", "the gate does not see a hold on the job itself", "holdable/gate_judge.go",
			`s.namedHold = holdText(g.keys.ReadHold(job.GetUID(), ours))`,
			`s.namedHold = ""`},
		{"G3", "the gate answers for a Workload that it reads after the pods", "holdable/gate.go",
			`seen, err = c.look(ctx, r, workload, job)
			return workload, err`,
			`if seen, err = c.look(ctx, r, workload, job); err != nil {
				return nil, err
			}
			return find.read(ctx, r)`},
		{"G3", "the gate answers Ready without raising A", "holdable/gate_judge.go",
			`return ruling{raise, "the execution is to be counted", s.executions + 1}`,
			`return ruling{letPass, "the execution is to be counted", s.executions + 1}`},
		{"G3", "the gate raises A without the key beside it", "holdable/gate_judge.go",
			`retry.Set(g.keys.AdmissionValue(uid, s.now), Annotation(g.keys.Admission())...),`,
			``},
		{"G3", "an admission is told by its Workload alone", "meta/admission.go",
			`return a.Workload == now.Workload && a.Reset.Equal(now.Reset)`,
			`return a.Workload == now.Workload`},
		{"G3", "an execution that was counted is counted again for another admission", "meta/admission.go",
			`if a.Generation != 0 || now.Generation != 0 {`,
			`if a.Generation < 0 {`},
		{"G3", "the gate's answer keeps the time of the question", "holdable/gate_judge.go",
			`retry.Set(now.UTC().Format(time.RFC3339), field("lastTransitionTime")...),`,
			``},

		// I: in every history
		{"I6", "a count of executions that cannot be read begins anew", "holdable/decide.go",
			`if v.badExecutions != nil || v.executions == math.MaxInt64 {`,
			`if v.executions == math.MaxInt64 {`},
		{"I8", "a write that landed, as the read shows, is told as none", "retry/call.go",
			`c.doubted = c.doubted || there`,
			``},
	}
}
