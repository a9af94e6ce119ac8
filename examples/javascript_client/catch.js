// Catch a falling ball with a paddle: the simulator of this example. It knows nothing of seedrl.

export const SIZE = 8;
export const NUM_ACTIONS = 3; // left, stay, right

export class Catch {
  reset() {
    this.row = 0;
    this.ball = Math.floor(Math.random() * SIZE);
    this.paddle = Math.floor(Math.random() * SIZE);
  }

  // The ball falls by one square. Returns the reward and whether the episode has ended; a catch is worth 1.
  step(action) {
    this.paddle = Math.min(SIZE - 1, Math.max(0, this.paddle + action - 1));
    this.row += 1;
    const ended = this.row === SIZE - 1;
    return { reward: ended && this.ball === this.paddle ? 1 : 0, ended };
  }

  // Writes SIZE x SIZE x 2 bytes into `board`: a plane for the ball, and one for the paddle.
  observe(board) {
    board.fill(0);
    board[2 * (this.row * SIZE + this.ball)] = 1;
    board[2 * ((SIZE - 1) * SIZE + this.paddle) + 1] = 1;
  }
}
