"""Fabric on two ranks ends with the Trainer's weights, bitwise."""

from ranks import RanksTest, main

DATA = ["samples=40", "batch=4", "shuffle"]


class FabricOnTwoRanks(RanksTest):
    def weights(self, *arguments):
        reports = self.train(*DATA, *arguments, ranks=2)
        self.assertEqual(reports[0]["weights"], reports[1]["weights"])
        return reports[0]["weights"]

    def check(self, *arguments):
        trainer, steps, hand = (self.weights(f"fabric={kind}", *arguments) for kind in ("trainer", "steps", "hand"))
        self.assertEqual(trainer, steps)
        self.assertEqual(trainer, hand)

    def test_ddp(self):
        self.check()

    def test_gradients_that_are_accumulated_are_reduced_once(self):
        self.check("accumulate=5")

    def test_fsdp(self):
        self.check("strategy=fsdp")

    def test_continues_inside_an_epoch(self):
        whole = self.weights("fabric=steps", "accumulate=2")
        self.weights("fabric=steps", "accumulate=2", "save=7")
        self.assertEqual(whole, self.weights("fabric=steps", "accumulate=2", "resume"))


if __name__ == "__main__":
    main()
