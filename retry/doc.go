// Package retry updates a Kubernetes object under a precondition, and tries
// again without throwing away what the precondition protects.
//
// The usual loop around an update, read, change, write, and on a conflict all
// of it again, is right when the change is right whatever the object now says.
// A fenced change is not of that kind: whether it may still be made depends on
// what the other writer did. So an [Engine] takes the decision as a function
// and asks it again on every try, and it keeps account of the one thing that a
// caller who failed needs to know: whether a write of his may have landed, or
// may land yet.
//
// Here is a whole program. It takes a lease on a ConfigMap, unless somebody
// with a higher number has it:
//
//	func main() {
//		cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
//		if err != nil {
//			log.Fatal(err)
//		}
//		engine, err := retry.New(cfg, retry.Options{})
//		if err != nil {
//			log.Fatal(err)
//		}
//		configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
//		const mine = int64(7)
//		_, err = engine.Do(context.Background(), time.Now().Add(10*time.Second), retry.Op{
//			Call:     meta.Error{Op: "Take", Object: meta.Object{Kind: "ConfigMap", Ref: meta.Ref{Namespace: "default", Name: "lease"}}},
//			Resource: configMaps,
//			Read: func(ctx context.Context, r retry.Reader) (*unstructured.Unstructured, error) {
//				return r.Get(ctx, configMaps, "default", "lease")
//			},
//			Decide: func(read *unstructured.Unstructured) (retry.Decision, error) {
//				holder, _ := retry.Lookup(read, "data", "number")
//				theirs, _ := strconv.ParseInt(fmt.Sprint(holder), 10, 64)
//				switch {
//				case theirs > mine:
//					return retry.Decision{}, meta.Errorf(meta.ErrRejected, "number %d has it", theirs)
//				case theirs == mine:
//					return retry.Decision{}, nil
//				}
//				return retry.Decision{Edits: []retry.Edit{retry.Set("7", "data", "number")}}, nil
//			},
//		})
//		switch {
//		case err == nil:
//			fmt.Println("taken")
//		case errors.Is(err, meta.ErrInDoubt):
//			fmt.Println("ask again later:", err)
//		default:
//			fmt.Println("not taken:", err)
//		}
//	}
//
// Return the errors of a Reader from Read and Check as they are, or wrapped
// with %w: the engine tells by them whether another try can help. What Decide
// returns ends the call.
//
// # What the engine promises
//
// The rules are those of holdable/RULES.md.
//
//   - One update is one transmission, made with the resourceVersion of the read
//     it was decided on, and every try decides again (rules T1, C7).
//   - Nothing leaves after the deadline or after the caller's context has ended
//     (rule C3), nothing is tried more than nine times (rule T2), and no wait
//     runs past the deadline (rule T5).
//   - After an answer that does not say what became of a write, the same bytes
//     go out again under the same precondition, of which at most one can
//     commit (rule T3).
//   - The answer to an update is read: what was sent has to be in it (rule T7).
//   - An error says whether anything was written, or may be until when
//     (rule E3).
//
// # What it does not know
//
// It knows nothing of holds, of kinds, or of who manages whom. That is package
// holdable, which is pure decisions run through this engine.
package retry
